import { visible } from "../format";
import { type Batch, type Part, sharesOf, summaryOf } from "./batch";

const states: Record<string, [glyph: string, word: string, hue: string]> = {
	open: ["○", "open", "ready"],
	sealed: ["▶", "sealed", "running"],
	cancelling: ["⊘", "is cancelled", "blocked"],
	finished: ["✓", "finished", "completed"],
};

/** BatchState says whether a batch takes tasks, and whether it has finished, by a glyph, a word and a hue. */
export function BatchState({ batch }: { batch: Batch }) {
	const [glyph, word, hue] = states[batch.state ?? ""] ?? ["?", batch.state ?? "unknown", "cancelled"];
	return (
		<span className={`state hue-${hue}`}>
			<span aria-hidden="true">{glyph}</span> {visible(word)}
		</span>
	);
}

/** The hue of each part of the bar. */
export const hues: Record<Part, string> = {
	completed: "completed",
	dead: "dead",
	cancelled: "cancelled",
	running: "running",
	waiting: "scheduled",
};

/** Bar draws what became of the tasks of a batch. */
export function Bar({ batch }: { batch: Batch }) {
	const summary = summaryOf(batch.counts);
	return (
		<svg className="shares" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={summary}>
			<title>{summary}</title>
			{sharesOf(batch.counts).map((s) => (
				<rect key={s.part} className={`hue-${hues[s.part]}`} x={1000 * s.from} width={1000 * s.length} height="10" />
			))}
		</svg>
	);
}
