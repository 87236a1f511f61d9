import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, call } from "../api/client";
import { many } from "../format";
import { useNamespace } from "../namespace";
import { Loading, Panel, ReadFailed, Segments, useStable } from "./basic";
import { Chart } from "./chart";
import { drawn, summary } from "./series";

const spans = ["15m", "1h", "24h"] as const;
type Span = (typeof spans)[number];

const views = {
	rates: { name: "what happens", series: "created,completed,failed,crashed" },
	states: { name: "what is there", series: "ready,running,dead" },
} as const;

/** HistoryPanel draws what a queue, or all queues together, did lately. */
export function HistoryPanel({ queue, title }: { queue?: string; title: string }) {
	const ns = useNamespace();
	const [span, setSpan] = useState<Span>("15m");
	const [view, setView] = useState<keyof typeof views>("rates");
	const { series } = views[view];
	const query = useQuery({
		queryKey: [ns, "history", queue ?? "", series, span],
		queryFn: () => call(api.GET("/v1/history", { params: { query: { span, series, ...(queue ? { queue } : {}) } } })),
		refetchInterval: span === "24h" ? 60_000 : 10_000,
		retry: false,
	});
	const shown = useStable(query.data);
	const d = shown ? drawn(shown) : undefined;
	const unit = shown?.series?.[0]?.name === "created" ? "/s" : "";
	return (
		<Panel
			title={title}
			side={
				<div className="actions">
					<Segments label="Show" items={["rates", "states"]} now={view} name={(v) => views[v].name} onPick={setView} />
					<Segments label="Span" items={spans} now={span} onPick={setSpan} />
				</div>
			}
		>
			{query.error && !d ? (
				<ReadFailed query={query} what="The history" />
			) : d ? (
				<>
					<Chart summary={summary(d, unit)} times={d.times} series={d.series} unit={unit} />
					<p className="dim">
						Memory of {shown?.node || "this node"}, in steps of {shown?.step}
						{d.missing > 0 ? `; ${many(d.missing, "step is", "steps are")} not known, such as before its start` : ""}.
					</p>
				</>
			) : (
				<Loading what="the history" />
			)}
		</Panel>
	);
}
