import type { Schemas } from "../api/client";
import { isName, nameRule } from "../names";
import { isId } from "../palette";

export type Task = Schemas["Task"];
type TaskState = NonNullable<Task["state"]>;

/** Filter is what the tasks of a list have in common, as GET /v1/tasks and jobs take it. */
export interface Filter {
	queue?: string;
	state?: TaskState;
	kind?: string;
	worker?: string;
	unique?: string;
	/** Fingerprint of the last error. */
	fingerprint?: string;
	/** Id of the batch that counts them. */
	batch?: string;
	labels: Record<string, string>;
	/** Times in the form of the contract: created then or later, created before. */
	from?: string;
	to?: string;
}

/** Word is a part of what was typed: where it lies, and what is wrong with it. */
interface Word {
	start: number;
	end: number;
	/** Qualifier with its colon; empty where the word has none. */
	key: string;
	value: string;
	fault?: string;
}

export interface Parsed {
	filter: Filter;
	/** A whole id names one task, and nothing else counts. */
	id?: string;
	words: Word[];
	/** The first word that is wrong. */
	fault?: Word;
}

const states: TaskState[] = ["ready", "running", "scheduled", "blocked", "completed", "dead", "cancelled"];

interface Qualifier {
	name: string;
	says: string;
}

const qualifiers: Qualifier[] = [
	{ name: "queue:", says: "name of a queue" },
	{ name: "state:", says: states.join(", ") },
	{ name: "kind:", says: "kind of the tasks" },
	{ name: "label.", says: "label.NAME:VALUE" },
	{ name: "worker:", says: "who runs them, or completed them" },
	{ name: "error:", says: "fingerprint of the last error" },
	{ name: "unique:", says: "unique key" },
	{ name: "batch:", says: "id of the batch that counts them" },
	{ name: "id:", says: "a whole id opens its task" },
	{ name: "after:", says: "created then or later: 12:00, 2h, 2030-01-31" },
	{ name: "before:", says: "created before then" },
];

/** cut splits a text into words. A value in double quotes may have spaces; \" and \\ stand for a quote and a backslash in it. */
export function cut(text: string): Word[] {
	const words: Word[] = [];
	let i = 0;
	while (i < text.length) {
		if (/\s/.test(text[i]!)) {
			i++;
			continue;
		}
		const start = i;
		while (i < text.length && !/[\s:"]/.test(text[i]!)) i++;
		let key = "";
		let value = text.slice(start, i);
		if (text[i] === ":") {
			key = text.slice(start, ++i);
			value = "";
		}
		let open = false;
		while (i < text.length && (open || !/\s/.test(text[i]!))) {
			if (text[i] === '"') open = !open;
			else if (open && text[i] === "\\" && /["\\]/.test(text[i + 1] ?? "")) value += text[++i];
			else value += text[i];
			i++;
		}
		words.push({ start, end: i, key, value, ...(open ? { fault: "a quote is open" } : {}) });
	}
	return words;
}

/** quoted writes a value so that cut reads it back. */
export function quoted(value: string): string {
	return /[\s"]/.test(value) || value === "" ? `"${value.replaceAll(/["\\]/g, "\\$&")}"` : value;
}

const labelName = /^[0-9A-Za-z][0-9A-Za-z._/-]{0,62}$/;

/** bytes is the length of a text as the server counts it. */
function bytes(s: string): number {
	return new TextEncoder().encode(s).length;
}

/** parse reads what was typed into the filter bar. now is in milliseconds; utc tells how a time without a zone is meant. */
export function parse(text: string, now: number, utc = false): Parsed {
	const words = cut(text);
	const filter: Filter = { labels: {} };
	let id: string | undefined;
	const seen = new Set<string>();
	for (const w of words) {
		if (w.fault) continue;
		if (w.key === "") {
			if (isId(w.value)) id = w.value;
			else w.fault = `needs a qualifier, such as kind:${w.value}`;
			continue;
		}
		if (seen.has(w.key)) {
			w.fault = `${w.key} is given twice`;
			continue;
		}
		seen.add(w.key);
		const fault = take(filter, w.key, w.value, now, utc);
		if (fault === "id") id = w.value;
		else if (fault) w.fault = fault;
	}
	if (filter.from && filter.to && filter.from >= filter.to) {
		const w = words.find((x) => x.key === "before:")!;
		w.fault ??= "must be later than after:";
	}
	const fault = words.find((w) => w.fault);
	return { filter, words, ...(id && !fault ? { id } : {}), ...(fault ? { fault } : {}) };
}

/** take adds a word to a filter, and returns what is wrong with it: "id" where it names one task. */
function take(f: Filter, key: string, value: string, now: number, utc: boolean): string | undefined {
	if (key.startsWith("label.")) {
		const label = key.slice(6, -1);
		if (!labelName.test(label)) return "must name a label: label.NAME:VALUE";
		if (bytes(value) > 128) return "a value of a label has at most 128 bytes";
		f.labels[label] = value;
		return undefined;
	}
	if (!qualifiers.some((q) => q.name === key))
		return `there is no qualifier ${key} There are ${qualifiers.map((q) => q.name).join(" ")}`;
	if (value === "") return "needs a value";
	switch (key) {
		case "queue:":
		case "kind:":
			if (!isName(value)) return nameRule;
			f[key === "queue:" ? "queue" : "kind"] = value;
			return undefined;
		case "state:":
			if (!states.includes(value as TaskState)) return `must be one of ${states.join(", ")}`;
			f.state = value as TaskState;
			return undefined;
		case "worker:":
			if (bytes(value) > 128) return "has at most 128 bytes";
			f.worker = value;
			return undefined;
		case "unique:":
			if (bytes(value) > 256) return "has at most 256 bytes";
			f.unique = value;
			return undefined;
		case "error:":
			if (!/^[0-9a-f]{16}$/.test(value)) return "must be the 16 hexadecimal digits of a fingerprint";
			f.fingerprint = value;
			return undefined;
		case "batch:":
			if (!isId(value) || value.length !== 26) return "must be a whole id of 26 characters";
			f.batch = value.toUpperCase();
			return undefined;
		case "id:":
			return isId(value) ? "id" : "must be a whole id of 26 characters";
		default: {
			const at = readTime(value, now, utc);
			if (at === undefined)
				return "must be a time (12:00, 2030-01-31, 2030-01-31T12:00) or how long ago (90s, 15m, 2h, 3d)";
			f[key === "after:" ? "from" : "to"] = new Date(at).toISOString();
			return undefined;
		}
	}
}

const units: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** readTime reads a time of day, a date, both, or how long ago; undefined for any other text. */
export function readTime(value: string, now: number, utc: boolean): number | undefined {
	const ago = /^(\d{1,6})([smhd])$/.exec(value);
	if (ago) return now - Number(ago[1]) * units[ago[2]!]!;
	const day = /^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$/.exec(value);
	if (day) {
		const d = new Date(now);
		const [h, m, s] = [Number(day[1]), Number(day[2]), Number(day[3] ?? 0)];
		const at = utc ? d.setUTCHours(h, m, s, 0) : d.setHours(h, m, s, 0);
		// A time of day that has not come is yesterday's.
		return at > now ? (utc ? d.setUTCDate(d.getUTCDate() - 1) : d.setDate(d.getDate() - 1)) : at;
	}
	const full = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:\d\d)?)?$/.exec(value);
	if (!full) return undefined;
	const zone = full[3] ?? (utc ? "Z" : "");
	const at = Date.parse(`${full[1]}T${full[2] ?? "00:00"}${zone}`);
	return Number.isNaN(at) ? undefined : at;
}

/** write gives a filter as it would be typed. */
export function write(f: Partial<Filter>): string {
	const out: string[] = [];
	const add = (key: string, value: string | undefined) => {
		if (value !== undefined) out.push(`${key}${quoted(value)}`);
	};
	add("queue:", f.queue);
	add("state:", f.state);
	add("kind:", f.kind);
	for (const [k, v] of Object.entries(f.labels ?? {})) add(`label.${k}:`, v);
	add("worker:", f.worker);
	add("error:", f.fingerprint);
	add("unique:", f.unique);
	add("batch:", f.batch);
	add("after:", f.from);
	add("before:", f.to);
	return out.join(" ");
}

/** matches tells whether a task still is what a filter asks for. */
export function matches(f: Filter, t: Task): boolean {
	if (f.queue && t.queue !== f.queue) return false;
	if (f.state && t.state !== f.state) return false;
	if (f.kind && t.kind !== f.kind) return false;
	if (f.worker && t.worker !== f.worker) return false;
	if (f.unique && t.unique_key !== f.unique) return false;
	if (f.fingerprint && t.fingerprint !== f.fingerprint) return false;
	if (f.batch && t.batch !== f.batch) return false;
	const labels = (t.labels ?? {}) as Record<string, string>;
	return Object.entries(f.labels).every(([k, v]) => labels[k] === v);
}

/** inWords says what a filter asks for. */
export function inWords(f: Filter): string {
	const out = [f.state ? `${f.state} tasks` : "tasks"];
	if (f.kind) out.push(`of kind ${f.kind}`);
	if (f.queue) out.push(`in queue ${f.queue}`);
	for (const [k, v] of Object.entries(f.labels)) out.push(`with label ${k} = ${v || "(empty)"}`);
	if (f.unique) out.push(`with unique key ${f.unique}`);
	if (f.batch) out.push(`of batch ${f.batch}`);
	if (f.worker) out.push(`of worker ${f.worker}`);
	if (f.fingerprint) out.push(`whose last error is ${f.fingerprint}`);
	if (f.from) out.push(`created at ${f.from} or later`);
	if (f.to) out.push(`created before ${f.to}`);
	return out.join(" ");
}

/** bulkFilter is a filter as jobs take it. */
export function bulkFilter(f: Filter): Schemas["TaskFilter"] {
	const { labels, ...rest } = f;
	return Object.keys(labels).length > 0 ? { ...rest, labels } : rest;
}

/** Values that suggestions come from, besides those that are fixed. */
export interface Known {
	queues: string[];
	kinds: string[];
	workers: string[];
	labels: Map<string, Set<string>>;
	errors: { fingerprint: string; says: string }[];
}

interface Suggestion {
	/** What stands in place of the word at the caret. */
	insert: string;
	says: string;
}

const times: [string, string][] = [
	["15m", "15 minutes ago"],
	["1h", "an hour ago"],
	["24h", "a day ago"],
	["7d", "a week ago"],
];

/** wordAt is the word that the caret touches. */
export function wordAt(text: string, caret: number): Word {
	const w = cut(text).find((x) => x.start <= caret && caret <= x.end);
	return w ?? { start: caret, end: caret, key: "", value: "" };
}

/** suggest lists what the word at the caret may become. */
export function suggest(text: string, caret: number, known: Known): Suggestion[] {
	const w = wordAt(text, caret);
	const low = w.value.toLowerCase();
	const used = new Set(cut(text).map((x) => x.key));
	if (w.key === "") {
		const out: Suggestion[] = qualifiers
			.filter((q) => q.name.startsWith(low) && (!used.has(q.name) || q.name === "label."))
			.map((q) => ({ insert: q.name, says: q.says }));
		// label.or suggests the names of labels.
		if (low.startsWith("label."))
			for (const l of known.labels.keys())
				if (`label.${l}`.toLowerCase().startsWith(low)) out.push({ insert: `label.${l}:`, says: "label" });
		return out.filter((s) => s.insert !== w.value);
	}
	const values = (list: Iterable<string>, says: string): Suggestion[] =>
		[...list]
			.filter((v) => v.toLowerCase().includes(low) && v !== w.value)
			.sort()
			.slice(0, 8)
			.map((v) => ({ insert: `${w.key}${quoted(v)} `, says }));
	if (w.key.startsWith("label.")) return values(known.labels.get(w.key.slice(6, -1)) ?? [], "seen in this list");
	switch (w.key) {
		case "queue:":
			return values(known.queues, "queue");
		case "kind:":
			return values(known.kinds, "seen in this list");
		case "worker:":
			return values(known.workers, "worker");
		case "state:":
			return states.filter((s) => s.startsWith(low) && s !== low).map((s) => ({ insert: `state:${s} `, says: "" }));
		case "error:":
			return known.errors
				.filter((e) => e.fingerprint.startsWith(low) || e.says.toLowerCase().includes(low))
				.filter((e) => e.fingerprint !== low)
				.slice(0, 8)
				.map((e) => ({ insert: `error:${e.fingerprint} `, says: e.says }));
		case "after:":
		case "before:":
			return times
				.filter(([v]) => v.startsWith(low) && v !== low)
				.map(([v, says]) => ({ insert: `${w.key}${v} `, says }));
	}
	return [];
}
