import { useEffect, useRef } from "react";
import UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../format";
import { useSettings } from "../settings";
import type { ChartProps } from "./chart";

const hues = ["--running", "--completed", "--dead", "--blocked", "--scheduled", "--accent"];

/** Plot is the drawing of a chart. It is a file of its own, which is read when a chart is shown. */
export default function Plot({ times, series, unit }: ChartProps) {
	const box = useRef<HTMLDivElement>(null);
	const { theme, times: zone } = useSettings();
	useEffect(() => {
		const el = box.current!;
		const style = getComputedStyle(el);
		const colour = (name: string) => style.getPropertyValue(name).trim();
		// The canvas does not know light-dark(): the browser resolves the colour first.
		const probe = document.createElement("span");
		el.append(probe);
		const resolved = (name: string) => {
			probe.style.color = colour(name);
			return getComputedStyle(probe).color;
		};
		const grid = { stroke: resolved("--line"), width: 1 };
		const axis = { stroke: resolved("--dim"), grid, ticks: { ...grid, size: 4 }, font: "11px system-ui" };
		const plot = new UPlot(
			{
				width: el.clientWidth,
				height: 180,
				legend: { live: true },
				cursor: { drag: { x: false, y: false } },
				axes: [
					{ ...axis, values: (_, v) => v.map((s) => clock(s * 1000, zone).slice(11, v[1]! - v[0]! < 60 ? 19 : 16)) },
					{ ...axis, size: 56, values: (_, v) => v.map((n) => `${n.toLocaleString("en-US")}${unit}`) },
				],
				series: [
					{ label: "time", value: (_, s) => (s == null ? "–" : clock(s * 1000, zone).slice(0, 19)) },
					...series.map((s, i) => ({
						label: s.name,
						stroke: resolved(s.hue ?? hues[i % hues.length]!),
						width: 1.5,
						points: { show: false },
						spanGaps: false,
					})),
				],
			},
			[times.map((t) => t / 1000), ...series.map((s) => s.values)],
			el,
		);
		probe.remove();
		const watch = new ResizeObserver(() => plot.setSize({ width: el.clientWidth, height: 180 }));
		watch.observe(el);
		return () => {
			watch.disconnect();
			plot.destroy();
		};
	}, [times, series, unit, theme, zone]);
	return <div className="plot" ref={box} aria-hidden="true" />;
}
