import { parseTime } from "../format";

/** labelLines writes labels as a line each. */
export function labelLines(labels: Record<string, unknown> | undefined): string {
	return Object.entries((labels ?? {}) as Record<string, string>)
		.map(([k, v]) => `${k}=${v}`)
		.join("\n");
}

/** readLabels reads them back, and says which line is wrong. */
export function readLabels(text: string): { labels: Record<string, string>; wrong?: string } {
	const labels: Record<string, string> = {};
	for (const line of text.split("\n")) {
		if (line.trim() === "") continue;
		const m = /^\s*([0-9A-Za-z][0-9A-Za-z._/-]{0,62})=(.*)$/.exec(line);
		if (!m) return { labels, wrong: line };
		labels[m[1]!] = m[2]!;
	}
	return { labels };
}

/** localInput writes a time as the field of a date and a time has it: in the browser's zone, to the second. */
export function localInput(at: string | undefined): string {
	const t = parseTime(at);
	if (t === undefined) return "";
	return new Date(t - new Date(t).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
