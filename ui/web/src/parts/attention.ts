import type { Schemas } from "../api/client";
import { count, rate } from "../format";

/** Attention is something that needs a person. */
export type Attention = Schemas["Attention"];

const words: Record<string, { glyph: string; hue: string; word: string }> = {
	stuck: { glyph: "⚠", hue: "dead", word: "stuck" },
	no_workers: { glyph: "⚠", hue: "dead", word: "without workers" },
	dead_rising: { glyph: "✕", hue: "dead", word: "dead letters rise" },
	crash_rate: { glyph: "╳", hue: "dead", word: "crashes" },
	paused_backlog: { glyph: "‖", hue: "blocked", word: "paused" },
	over_quota: { glyph: "▲", hue: "blocked", word: "over its quota" },
	partition_unled: { glyph: "⚠", hue: "dead", word: "without a leader" },
	node_down: { glyph: "▲", hue: "dead", word: "node down" },
	disk_low: { glyph: "▲", hue: "dead", word: "disk low" },
	cert_ends: { glyph: "◷", hue: "blocked", word: "certificate ends" },
	token_ends: { glyph: "◷", hue: "blocked", word: "token ends" },
};

/** wordOf says what kind of thing it is, by a glyph, a hue and a word. A kind of a later server has its own name. */
export function wordOf(kind = ""): { glyph: string; hue: string; word: string } {
	return words[kind] ?? { glyph: "▲", hue: "blocked", word: kind.replaceAll("_", " ") };
}

/** placeOf is where one looks on. */
export function placeOf(a: Attention, ns: string): { name: string; link: object } | undefined {
	const queue = (tab?: string) => ({
		to: tab ? "/$ns/queues/$queue/$tab" : "/$ns/queues/$queue",
		params: { ns, queue: a.object ?? "", ...(tab ? { tab } : {}) },
	});
	switch (a.kind) {
		case "dead_rising":
			return { name: "Dead letters", link: { to: "/$ns/dead", params: { ns }, search: { queue: a.object } } };
		case "crash_rate":
			return { name: "Errors", link: queue("errors") };
		case "no_workers":
			return { name: "Workers", link: queue("workers") };
		case "stuck":
		case "paused_backlog":
			return { name: "Queue", link: queue() };
		case "node_down":
		case "disk_low":
		case "cert_ends":
		case "partition_unled":
			return { name: "Cluster", link: { to: "/cluster" } };
		default:
			return undefined;
	}
}

/** headline is what is spoken of the list. */
export function headline(list: readonly Attention[], completed: number | undefined): string {
	if (list.length === 0) return `Nothing needs you${completed === undefined ? "" : `, ${rate(completed)} completed`}.`;
	const first = list[0]!;
	const more = list.length > 1 ? `, and ${count(list.length - 1)} more` : "";
	const text = (first.text ?? wordOf(first.kind).word).replace(/\.$/, "");
	return `${first.object}: ${text}${more}.`;
}
