import type { Schemas } from "../api/client";
import { parseSpan } from "../format";
import type { Series } from "./chart";

interface Drawn {
	times: number[];
	series: Series[];
	/** Steps that nothing is known of. */
	missing: number;
}

const hues: Record<string, string> = {
	created: "--running",
	completed: "--completed",
	failed: "--dead",
	crashed: "--blocked",
	ready: "--ready",
	running: "--running",
	dead: "--dead",
};

/** What is counted within a step is shown for a second; the others are how it was at the end of a step. */
const counted = new Set(["created", "completed", "failed", "crashed", "entries", "fsyncs", "log_kib", "mutations"]);

/** drawn makes lines of an answer: rates a second where something was counted, and no value in a gap. */
export function drawn(h: Schemas["HistoryResponse"]): Drawn {
	const step = parseSpan(h.step) ?? 0;
	const from = Date.parse(h.from ?? "");
	const n = Math.max(0, ...(h.series ?? []).map((s) => s.values?.length ?? 0));
	const gap = new Array<boolean>(n).fill(false);
	for (const g of h.gaps ?? []) gap.fill(true, g.first ?? 0, (g.first ?? 0) + (g.steps ?? 0));
	return {
		times: Array.from({ length: n }, (_, i) => from + i * step),
		series: (h.series ?? []).map((s) => {
			const name = s.name ?? "";
			const per = counted.has(name) && step > 0 ? step / 1000 : 1;
			const hue = hues[name];
			return {
				name,
				values: Array.from({ length: n }, (_, i) =>
					gap[i] ? null : Math.round(((s.values?.[i] ?? 0) / per) * 100) / 100,
				),
				...(hue ? { hue } : {}),
			};
		}),
		missing: gap.filter(Boolean).length,
	};
}

/** summary says in a line what the series did. */
export function summary(d: Drawn, unit: string): string {
	return d.series
		.map((s) => {
			const known = s.values.filter((v) => v !== null);
			if (known.length === 0) return `${s.name}: nothing known`;
			const last = known.at(-1)!;
			return `${s.name} ${last}${unit}, at most ${Math.max(...known)}${unit}`;
		})
		.join("; ");
}
