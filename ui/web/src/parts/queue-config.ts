import type { Schemas } from "../api/client";
import { parseSpan } from "../format";
import { isName, nameRule } from "../names";

export type QueueConfig = Schemas["QueueConfig"];

export interface Field {
	/** Name in the contract; a dot leads into an object. */
	name: string;
	label: string;
	/** name is of a queue; names are of limiters, with commas between them. */
	kind: "number" | "span" | "choice" | "name" | "names";
	/** What holds where nothing is set, in words. */
	otherwise: string;
	choices?: readonly string[];
	/** Decimals are allowed. */
	decimals?: boolean;
	/** Zero says something else than absence. */
	zero?: string;
}

interface Group {
	name: string;
	fields: Field[];
	/** It is about what may run at once, and in which order. */
	limits?: boolean;
}

const number = (name: string, label: string, otherwise: string, more: Partial<Field> = {}): Field => ({
	name,
	label,
	kind: "number",
	otherwise,
	...more,
});
const duration = (name: string, label: string, otherwise: string, more: Partial<Field> = {}): Field => ({
	name,
	label,
	kind: "span",
	otherwise,
	...more,
});

/** What can be set of a queue, with the defaults of the server in words. */
export const groups: Group[] = [
	{
		name: "Attempts",
		fields: [
			number("max_attempts", "failures", "5"),
			number("max_crashes", "crashes", "10"),
			number("max_deliveries", "deliveries", "1,000", { zero: "0: off" }),
			duration("lease", "lease", "60s"),
			duration("max_run", "longest run", "none"),
			duration("cancel_grace", "grace of a cancel", "30s", { zero: "0: none" }),
		],
	},
	{
		name: "Retry",
		fields: [
			{
				name: "retry.backoff",
				label: "backoff",
				kind: "choice",
				otherwise: "full_jitter",
				choices: ["fixed", "linear", "exponential", "full_jitter", "equal_jitter"],
			},
			duration("retry.base", "first wait", "5s"),
			number("retry.factor", "factor", "2", { decimals: true }),
			duration("retry.max", "longest wait", "15m"),
			{ name: "dead_letter", label: "dead letters to", kind: "name", otherwise: "no queue" },
		],
	},
	{
		name: "How long tasks are kept",
		fields: [
			duration("retain_completed", "completed", "24h", { zero: "0: removed at the end" }),
			duration("retain_cancelled", "cancelled", "24h"),
			duration("retain_dead", "dead", "336h"),
		],
	},
	{
		name: "Order and time to live",
		fields: [
			duration("aging", "aging", "60s", { zero: "0: strict priority" }),
			duration("default_ttl", "expires after", "never"),
		],
	},
	{
		name: "What may run",
		limits: true,
		fields: [
			number("concurrency", "tasks at once", "no bound"),
			number("max_workers", "workers at once", "no bound"),
			number("rate.limit", "rate: how much", "no bound"),
			duration("rate.per", "rate: in each", "none"),
			number("rate.burst", "rate: burst", "as much"),
			{ name: "limiters", label: "limiters", kind: "names", otherwise: "none" },
		],
	},
	{
		name: "What may run of each key",
		limits: true,
		fields: [
			number("per_key.concurrency", "tasks at once", "no bound"),
			number("per_key.rate.limit", "rate: how much", "no bound"),
			duration("per_key.rate.per", "rate: in each", "none"),
			number("per_key.rate.burst", "rate: burst", "as much"),
		],
	},
	{
		name: "Which task is next",
		limits: true,
		fields: [
			{ name: "order", label: "order", kind: "choice", otherwise: "fifo", choices: ["fifo", "strict"] },
			{ name: "fairness", label: "fairness", kind: "choice", otherwise: "lanes", choices: ["lanes", "none"] },
		],
	},
	{
		name: "Bounds of the queue, in each partition",
		fields: [
			number("max_tasks", "tasks not ended", "no bound"),
			number("max_bytes", "bytes", "no bound"),
			number("max_payload", "bytes of a payload", "1 MiB"),
		],
	},
	{
		name: "Ceilings of what a task may ask for",
		fields: [
			number("ceilings.max_attempts", "failures", "1,000"),
			number("ceilings.max_crashes", "crashes", "1,000"),
			number("ceilings.max_deliveries", "deliveries", "1,000,000"),
			duration("ceilings.lease", "lease", "24h"),
			duration("ceilings.max_run", "longest run", "none"),
			number("ceilings.priority", "priority", "9"),
		],
	},
];

export const fields = groups.flatMap((g) => g.fields.map((f) => ({ ...f, group: g.name })));

/** Values are a configuration as texts, by the name of the field; a field that is not set is absent. */
export type Values = Record<string, string>;

/** spanText writes milliseconds as a duration of the contract, as people write it: 1h30m. */
export function spanText(ms: number): string {
	if (ms === 0) return "0s";
	let rest = ms;
	let out = "";
	for (const [unit, n] of [
		["h", 3_600_000],
		["m", 60_000],
		["s", 1000],
		["ms", 1],
	] as const) {
		const whole = Math.floor(rest / n);
		if (whole > 0) out += whole + unit;
		rest -= whole * n;
	}
	return out;
}

/** A queue names at most this many limiters. */
const mostNames = 4;

/** namesOf reads names with commas or spaces between them, as the server keeps them: in order, and each once. */
export const namesOf = (text: string): string[] => [...new Set(text.split(/[\s,]+/).filter(Boolean))].sort();

function textOf(f: Field, v: unknown): string | undefined {
	if (v === undefined || v === null || v === "") return undefined;
	if (f.kind === "names") return namesOf(Array.isArray(v) ? v.join(" ") : String(v)).join(", ") || undefined;
	if (f.kind !== "span") return String(v);
	const ms = parseSpan(String(v));
	return ms === undefined ? String(v) : spanText(ms);
}

/** valuesOf reads a configuration. */
export function valuesOf(config: QueueConfig): Values {
	const out: Values = {};
	for (const f of fields) {
		const text = textOf(f, at(config, f.name.split(".")));
		if (text !== undefined) out[f.name] = text;
	}
	return out;
}

/** at is what stands in an object under names that lead into it. */
const at = (o: unknown, path: readonly string[]): unknown =>
	path.reduce((v, name) => (v as Record<string, unknown> | undefined)?.[name], o);

/** put writes a value there; undefined removes it, and the objects around it that are empty then. */
function put(o: Record<string, unknown>, [name = "", ...rest]: readonly string[], value: unknown): void {
	let v = value;
	if (rest.length > 0) {
		const inner = { ...(o[name] as Record<string, unknown> | undefined) };
		put(inner, rest, value);
		v = Object.keys(inner).length > 0 ? inner : undefined;
	}
	if (v === undefined) delete o[name];
	else o[name] = v;
}

/** configOf writes values over a configuration, of which fields that this page does not know are kept. */
export function configOf(base: QueueConfig, values: Values): QueueConfig {
	const out = structuredClone(base) as Record<string, unknown>;
	// What the server tells of a configuration is not set with it.
	delete out["version"];
	delete out["pinned"];
	for (const f of fields) {
		const text = values[f.name];
		put(out, f.name.split("."), text === undefined ? undefined : valueFrom(f, text));
	}
	return out as QueueConfig;
}

/** valueFrom is what a text stands for in a configuration. */
function valueFrom(f: Field, text: string): unknown {
	if (f.kind === "number") return Number(text);
	return f.kind === "names" ? namesOf(text) : text;
}

/** isAbout tells whether a refusal of a field of the contract is about a field of the form: "limiters[1]" is about "limiters". */
export const isAbout = (refused: string | undefined, f: Field): boolean => refused?.replace(/\[\d+\]$/, "") === f.name;

/** wrongOf says what is wrong with a text, before the server is asked. */
export function wrongOf(f: Field, text: string): string | undefined {
	if (text === "") return undefined;
	if (f.kind === "span" && (parseSpan(text) === undefined || text.startsWith("-")))
		return "must be a duration such as 90s or 1h30m";
	if (f.kind === "number" && !(f.decimals ? /^\d+(\.\d{1,2})?$/ : /^\d+$/).test(text))
		return f.decimals ? "must be a number with at most two decimals" : "must be a whole number";
	if (f.kind === "name" && !isName(text)) return nameRule;
	if (f.kind === "names") {
		const bad = namesOf(text).find((name) => !isName(name));
		if (bad !== undefined) return `${bad} ${nameRule}`;
		if (namesOf(text).length > mostNames) return `must be at most ${mostNames} names`;
	}
	if (f.kind === "number" && !Number.isSafeInteger(Math.floor(Number(text)))) return "must be below 2^53";
	return undefined;
}

/** normal writes a text as a configuration that was read back has it, so that texts can be compared. */
export function normal(values: Values): Values {
	const out: Values = {};
	for (const f of fields) {
		const text = (values[f.name] ?? "").trim();
		if (text === "" || (f.kind === "names" && namesOf(text).length === 0)) continue;
		out[f.name] = wrongOf(f, text) ? text : (textOf(f, f.kind === "number" ? Number(text) : text) ?? text);
	}
	return out;
}

interface Change {
	name: string;
	label: string;
	from: string | undefined;
	to: string | undefined;
}

/** diff lists the fields in which two configurations differ. */
export function diff(from: Values, to: Values): Change[] {
	const out: Change[] = [];
	for (const f of fields)
		if (from[f.name] !== to[f.name])
			out.push({ name: f.name, label: `${f.group}: ${f.label}`, from: from[f.name], to: to[f.name] });
	return out;
}

interface Merged {
	values: Values;
	/** Fields that both changed, to something else. Yours is taken unless it is chosen otherwise. */
	conflicts: string[];
}

/** merge takes from each side what it changed of a common base. */
export function merge(base: Values, theirs: Values, yours: Values): Merged {
	const values: Values = {};
	const conflicts: string[] = [];
	for (const { name } of fields) {
		const [b, t, y] = [base[name], theirs[name], yours[name]];
		if (t !== b && y !== b && t !== y) conflicts.push(name);
		const v = y !== b ? y : t;
		if (v !== undefined) values[name] = v;
	}
	return { values, conflicts };
}
