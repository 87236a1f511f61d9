import type { Schemas } from "./api/client";

export type Request = Schemas["SearchRequest"];

/** Form is what a search asks for, as it stands in the address and in the fields: texts, of which "" is not given. */
export interface Form {
	collection: string;
	text: string;
	k: string;
	explain: string;
	exact: string;
	roles: string;
	role_mode: string;
	creds: string;
	client: string;
	valid_at: string;
	ids: string;
	not_ids: string;
	filter: string;
	params: string;
	ruleset: string;
	rule_params: string;
	include: string;
	dense: string;
	lexical: string;
	min_score: string;
	decay_field: string;
	half_life: string;
	candidates: string;
	ef: string;
	consistency: string;
	timeout: string;
	partial: string;
	record: string;
}

export const fields: (keyof Form)[] = [
	"collection",
	"text",
	"k",
	"explain",
	"exact",
	"roles",
	"role_mode",
	"creds",
	"client",
	"valid_at",
	"ids",
	"not_ids",
	"filter",
	"params",
	"ruleset",
	"rule_params",
	"include",
	"dense",
	"lexical",
	"min_score",
	"decay_field",
	"half_life",
	"candidates",
	"ef",
	"consistency",
	"timeout",
	"partial",
	"record",
];

/** formOf reads a form from the values of an address. */
export function formOf(search: Record<string, string | undefined>): Form {
	return Object.fromEntries(fields.map((f) => [f, search[f] ?? ""])) as unknown as Form;
}

/** Fault is what is wrong with a field, before anything is sent. */
interface Fault {
	field: keyof Form | "vector";
	text: string;
}

const list = (text: string): string[] =>
	text
		.split(/[\s,]+/)
		.map((s) => s.trim())
		.filter(Boolean);

/** requestOf makes the request of a form and of a vector, or says what is wrong with them. */
export function requestOf(f: Form, vector: string, model: string): { request: Request } | { fault: Fault } {
	let fault: Fault | undefined;
	const number = (field: keyof Form): number | undefined => {
		if (f[field].trim() === "") return undefined;
		const n = Number(f[field]);
		if (Number.isNaN(n)) fault ??= { field, text: "must be a number" };
		return n;
	};
	const object = (field: keyof Form): Record<string, unknown> | undefined => {
		if (f[field].trim() === "") return undefined;
		try {
			const v: unknown = JSON.parse(f[field]);
			if (v && typeof v === "object" && !Array.isArray(v)) return v as Record<string, unknown>;
			fault ??= { field, text: "must be a JSON object" };
		} catch (e) {
			fault ??= { field, text: `must be a JSON object: ${(e as Error).message}` };
		}
		return undefined;
	};
	const given = <T extends object>(o: T): T | undefined => {
		const kept = Object.entries(o).filter(
			([, v]) => v !== undefined && v !== "" && !(Array.isArray(v) && v.length === 0),
		);
		return kept.length ? (Object.fromEntries(kept) as T) : undefined;
	};
	let numbers: number[] | undefined;
	if (vector.trim() !== "") {
		try {
			const v: unknown = JSON.parse(vector.trim().startsWith("[") ? vector : `[${vector}]`);
			if (Array.isArray(v) && v.every((n) => typeof n === "number")) numbers = v;
			else fault ??= { field: "vector", text: "must be numbers" };
		} catch {
			fault ??= { field: "vector", text: "must be numbers, with commas between them" };
		}
		if (numbers && !model.trim()) fault ??= { field: "vector", text: "needs the id of the model that made it" };
	}
	if (f.collection === "") fault ??= { field: "collection", text: "is required" };
	if (f.text === "" && !numbers) fault ??= { field: "text", text: "is required, or a vector" };
	if (f.ruleset === "" && f.rule_params.trim() !== "") fault ??= { field: "rule_params", text: "needs a ruleset" };
	const decay = given({ field: f.decay_field, half_life: f.half_life });
	const request = given({
		collection: f.collection,
		...(numbers ? { vector: numbers, model: model.trim() } : { query_text: f.text }),
		k: number("k"),
		gate: given({
			roles: list(f.roles),
			role_mode: f.role_mode,
			credentials_all: list(f.creds),
			valid_at: f.valid_at.trim(),
			client: f.client.trim(),
			ids_in: list(f.ids),
			ids_not_in: list(f.not_ids),
			filter: f.filter.trim() === "" ? "" : f.filter,
			params: object("params"),
		}),
		judge: f.ruleset ? given({ ruleset: f.ruleset, params: object("rule_params"), include: f.include }) : undefined,
		merge: given({ dense: number("dense"), lexical: number("lexical"), min_score: number("min_score"), decay }),
		consistency: f.consistency,
		exact: f.exact === "1" ? true : undefined,
		explain: f.explain === "0" ? undefined : true,
		candidates: number("candidates"),
		ef: number("ef"),
		timeout: f.timeout.trim(),
		partial_ok: f.partial === "1" ? true : undefined,
		record: f.record === "1" ? true : undefined,
	}) as Request;
	return fault ? { fault } : { request };
}

/** only narrows a search to one id, so that its counts say where that id stops. */
export function only(r: Request, id: string): Request {
	return {
		...r,
		gate: { ...r.gate, ids_in: [id] },
		record: false,
		explain: true,
		k: 1,
		merge: withoutMin(r.merge),
	} as Request;
}

function withoutMin(m: Request["merge"]): Request["merge"] {
	if (!m) return m;
	const { min_score: _, ...rest } = m;
	return rest;
}

const steps: [keyof Schemas["BlockedBy"], string][] = [
	["role", "the gate: it has none of the roles"],
	["credential", "the gate: it lacks a credential that is valid then"],
	["block", "the gate: it blocks this client"],
	["filter", "the gate: the filter does not hold for it, or cannot be decided"],
];

/** whyNot says where a search stops one id, by the counts of the same search narrowed to it. */
export function whyNot(
	r: Request,
	id: string,
	whole: Schemas["SearchResponse"],
	narrowed: Schemas["SearchResponse"],
): string {
	if (r.gate?.ids_in?.length && !r.gate.ids_in.includes(id))
		return "Stopped at the gate: it is not among the ids that are asked for.";
	if (r.gate?.ids_not_in?.includes(id)) return "Stopped at the gate: it is among the ids that are left out.";
	const blocked = narrowed.gate?.blocked_by ?? {};
	for (const [step, text] of steps) if ((blocked[step] ?? 0) > 0) return `Stopped at ${text}.`;
	if ((narrowed.gate?.passed ?? 0) === 0) return "There is no such point in the collection.";
	if ((narrowed.judge?.blocked ?? 0) > 0)
		return `Stopped by the judge: a rule of ${narrowed.judge?.ruleset ?? "the ruleset"} blocks it.`;
	const found = narrowed.results?.[0];
	if (!found) {
		return (narrowed.judge?.conditional ?? 0) > 0
			? "Stopped by the judge: its verdict is conditional, and only eligible points are asked for."
			: "It passes the gate, and was not answered: the search may have ended before it.";
	}
	if (whole.results?.some((x) => x.id === id)) return "It is here.";
	const score = (found.score ?? 0).toFixed(6);
	if (r.merge?.min_score !== undefined && (found.score ?? 0) < r.merge.min_score)
		return `It passes gate and judge, and has the score ${score}, below min_score ${r.merge.min_score}.`;
	const last = whole.results?.at(-1)?.score;
	return `It passes gate and judge, and has the score ${score}${last === undefined ? "" : `; the last of the ${whole.results?.length} here has ${last.toFixed(6)}`}.`;
}

/** marked splits an expression at a fault, whose line and column count from 1 and whose column counts characters. */
export function marked(text: string, line: number, column: number): { before: string; at: string; after: string } {
	const lines = text.split("\n");
	const i = Math.min(Math.max(line, 1), lines.length) - 1;
	const chars = [...lines[i]!];
	const c = Math.min(Math.max(column, 1), chars.length + 1) - 1;
	const join = (l: string[]) => (l.length ? `${l.join("\n")}\n` : "");
	return {
		before: join(lines.slice(0, i)) + chars.slice(0, c).join(""),
		at: chars[c] ?? " ",
		after: chars.slice(c + 1).join("") + (i < lines.length - 1 ? `\n${lines.slice(i + 1).join("\n")}` : ""),
	};
}
