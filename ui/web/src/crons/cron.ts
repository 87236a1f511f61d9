import type { Schemas } from "../api/client";
import { many, parseSpan, parseTime, span } from "../format";
import { isName } from "../names";
import { indented } from "../parts/bytes";
import { labelLines, localInput, readLabels } from "../parts/fields";

export type Cron = Schemas["Cron"];
export type Run = Schemas["CronRun"];
export type CronConfig = Schemas["CronConfig"];
export type Preview = Schemas["PreviewCronResponse"];
export type Change = Schemas["CronChange"];

/** Clocks say whose clocks slots are shown by: those of the cron's zone, or UTC. */
export const clocks = ["zone", "utc"] as const;
export type Clocks = (typeof clocks)[number];

/** slotText writes a time as it was given, with its zone: "2026-03-29 03:00 +02:00". Seconds are left out where they are 0. */
export function slotText(at: string | undefined): string {
	const m = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(at ?? "");
	if (!m) return at || "–";
	return `${m[1]} ${m[2]}${m[3] === ":00" ? "" : m[3]} ${m[4] === "Z" ? "UTC" : m[4]}`;
}

/** inUTC is a time of any zone as UTC has it. */
export function inUTC(at: string): string {
	const t = parseTime(at);
	return t === undefined ? at : new Date(t).toISOString().replace(".000Z", "Z");
}

/** utcBeside is a time as UTC has it, to stand beside the time itself: with its date where that is another one. */
export function utcBeside(at: string): string {
	const utc = inUTC(at);
	return utc.slice(0, 10) === at.slice(0, 10) ? slotText(utc).slice(11) : slotText(utc);
}

/** standing is the state of a cron in a word. */
export function standing(c: Cron): "paused" | "waits" | "over" | "on" {
	if (c.paused) return "paused";
	if (c.waiting_at) return "waits";
	return c.next_at ? "on" : "over";
}

/** isOpen tells whether more is to come of a run. */
export const isOpen = (run: Run): boolean => markOf(run).shape === "open";

/** ranOf changes whenever one of some crons has run, or its last run has ended. */
export function ranOf(crons: readonly Cron[] | undefined): string | undefined {
	const ran = crons?.filter((c) => c.runs);
	return ran?.map((c) => `${c.name} ${c.runs} ${c.last_run?.state ?? ""}`).join(",");
}

/** took is how long the task of a run ran, in milliseconds; undefined where it has not ended, or is not known any more. */
export function took(run: Run): number | undefined {
	const from = parseTime(run.began_at);
	const to = parseTime(run.ended_at);
	return from === undefined || to === undefined ? undefined : Math.max(0, to - from);
}

interface Mark {
	/** bar: it ran; cross: it needs a person; open: it is not over; dot: nothing ran. */
	shape: "bar" | "cross" | "open" | "dot";
	glyph: string;
	hue: string;
	word: string;
}

const skips: Record<string, string> = {
	overlap: "skipped: the task before had not ended",
	missed: "skipped: its time was over",
	replaced: "skipped: it waited, and a later slot came",
};

/** markOf says what a run came to. */
export function markOf(run: Run): Mark {
	switch (run.outcome) {
		case "waiting":
			return { shape: "open", glyph: "◌", hue: "blocked", word: "waits for the task before" };
		case "skipped":
			return { shape: "dot", glyph: "⊘", hue: "cancelled", word: skips[run.skipped ?? ""] ?? "skipped" };
		case "refused":
			return { shape: "cross", glyph: "✕", hue: "dead", word: "refused" };
	}
	switch (run.state) {
		case "completed":
			return { shape: "bar", glyph: "✓", hue: "completed", word: "completed" };
		case "dead":
			return { shape: "cross", glyph: "✕", hue: "dead", word: "dead" };
		case "cancelled":
			return { shape: "dot", glyph: "⊘", hue: "cancelled", word: "cancelled" };
		case undefined:
			return { shape: "bar", glyph: "✓", hue: "cancelled", word: "its task is not kept any more" };
		case "running":
			return { shape: "open", glyph: "▶", hue: "running", word: "running" };
		case "ready":
			return { shape: "open", glyph: "●", hue: "ready", word: "ready" };
		default:
			return { shape: "open", glyph: "◷", hue: "scheduled", word: run.state };
	}
}

/** What a strip of runs shows of one. */
export interface Stripe extends Mark {
	/** From 0 to 1, of the longest run in the strip. */
	height: number;
	number: number;
}

/** How many of the last runs a list shows. */
export const lastRuns = 20;

/** stripOf draws the last runs, the last one at the end, and says them in a sentence. */
export function stripOf(runs: readonly Run[]): { stripes: Stripe[]; summary: string } {
	const last = runs.slice(0, lastRuns).reverse();
	const most = Math.max(1, ...last.map((r) => took(r) ?? 0));
	const counts = new Map<string, number>();
	const stripes = last.map((r) => {
		const mark = markOf(r);
		const word = mark.word.replace(/:.*/, "");
		counts.set(word, (counts.get(word) ?? 0) + 1);
		const ms = took(r);
		// Short runs beside a long one are still seen: the root of the part.
		return { ...mark, number: r.number ?? 0, height: ms === undefined ? 0.5 : Math.max(0.2, Math.sqrt(ms / most)) };
	});
	if (last.length === 0) return { stripes, summary: "It has not run yet" };
	const known = last.map(took).filter((ms) => ms !== undefined);
	const said = [...counts].map(([word, n]) => `${n} ${word}`).join(", ");
	const longest = known.length > 0 ? `; the longest took ${span(Math.max(...known))}` : "";
	return { stripes, summary: `${many(last.length, "run")}: ${said}${longest}` };
}

/** changeText says what a change of the clocks does, in a line. */
export function changeText(c: Change): string {
	const by = span(parseSpan(c.by) ?? 0);
	return `the clocks go ${c.kind === "skipped" ? "forward" : "back"} ${by}: ${c.words ?? ""}`;
}

/** markOfTime says of a slot of a preview what a change of the clocks does to it, or that they change on its day. */
export function markOfTime(at: string, changes: readonly Change[]): { text: string; moved: boolean } | undefined {
	const hit = changes.find((c) => c.slots?.includes(at));
	if (hit) return { text: changeText(hit), moved: true };
	const offset = /([+-])(\d\d):(\d\d)$/.exec(at);
	const ms = offset ? (offset[1] === "-" ? -1 : 1) * (Number(offset[2]) * 60 + Number(offset[3])) * 60_000 : 0;
	const same = changes.some((c) => {
		const t = parseTime(c.at);
		return t !== undefined && new Date(t + ms).toISOString().slice(0, 10) === at.slice(0, 10);
	});
	return same ? { text: "the clocks change on this day", moved: false } : undefined;
}

/** halfDayBefore is from when on a preview shows the day of a change of the clocks, and those behind it. */
export function halfDayBefore(c: Change): string | undefined {
	const t = parseTime(c.at);
	return t === undefined ? undefined : new Date(t - 12 * 3_600_000).toISOString();
}

/** afterThis is from when on a preview goes on behind the next slot of a cron: a period counts from that slot, other slots come after the second before it. */
export function afterThis(c: Cron): string | undefined {
	const t = parseTime(c.next_at);
	if (c.paused) return undefined; // its next slot may have gone by
	if (t === undefined || isPeriod(c.schedule)) return c.next_at;
	return new Date(t - 1000).toISOString();
}

const isPeriod = (schedule: string | undefined) => (schedule ?? "").trim().startsWith("@every");

/** comingOf is which slots come of a cron: the next one, and those that a preview has behind it, up to its end. */
export function comingOf(c: Cron, preview: Preview | undefined): string[] {
	if (!c.next_at) return [];
	const times = preview?.times ?? [];
	const list = isPeriod(c.schedule) || times.length === 0 ? [c.next_local || c.next_at, ...times] : times;
	const end = parseTime(c.end);
	return list.slice(0, 5).filter((t) => end === undefined || (parseTime(t) ?? 0) <= end);
}

/** Form is a cron as it is typed. */
export interface Form {
	name: string;
	schedule: string;
	zone: string;
	jitter: string;
	start: string;
	end: string;
	overlap: NonNullable<CronConfig["overlap"]>;
	catchUp: NonNullable<CronConfig["catch_up"]>;
	paused: boolean;
	queue: string;
	kind: string;
	key: string;
	priority: string;
	/** undefined: it is bytes that are not text, which stay. */
	payload: string | undefined;
	labels: string;
	attempts: string;
	lease: string;
	tag: string;
}

/** What overlap and catch-up can be, in words. */
export const overlaps: [Form["overlap"], string][] = [
	["skip", "skip: the slot makes no task"],
	["allow", "allow: it makes one all the same"],
	["queue_one", "queue_one: one run waits for its end"],
	["cancel_previous", "cancel_previous: that task is cancelled first"],
];
export const catchUps: [Form["catchUp"], string][] = [
	["one", "one: the last one runs"],
	["none", "none: none of them runs"],
	["all", "all: each runs, the last 100"],
];

export const blank: Form = {
	name: "",
	schedule: "",
	zone: "",
	jitter: "",
	start: "",
	end: "",
	overlap: "skip",
	catchUp: "one",
	paused: false,
	queue: "",
	kind: "",
	key: "",
	priority: "",
	payload: "{}",
	labels: "",
	attempts: "",
	lease: "",
	tag: "",
};

/** formOf is a cron as it is typed. `payload` is its payload as text; undefined: it is not text. */
export function formOf(c: Cron, payload: string | undefined): Form {
	const t = c.template;
	return {
		name: c.name ?? "",
		schedule: c.schedule,
		zone: c.zone ?? "",
		jitter: c.jitter ?? "",
		start: localInput(c.start),
		end: localInput(c.end),
		overlap: c.overlap ?? "skip",
		catchUp: c.catch_up ?? "one",
		paused: c.paused ?? false,
		queue: t.queue,
		kind: t.kind === t.queue ? "" : (t.kind ?? ""),
		key: t.key ?? "",
		priority: t.priority ? String(t.priority) : "",
		payload,
		labels: labelLines(t.labels),
		attempts: t.max_attempts ? String(t.max_attempts) : "",
		lease: t.lease ?? "",
		tag: t.tag ?? "",
	};
}

/** What a cron says besides its configuration. */
const around = [
	"name",
	"version",
	"words",
	"next_at",
	"next_local",
	"waiting_at",
	"created_at",
	"updated_at",
	"by",
	"runs",
	"last_run",
	"recent",
	"index",
] as const;

/** settingsOf is the configuration of a cron, as it is sent. */
export function settingsOf(c: Cron): CronConfig {
	const out = structuredClone(c) as Record<string, unknown>;
	for (const name of around) delete out[name];
	return out as CronConfig;
}

/** configText lays a configuration out for people. `payload`, where it is text, stands in it as it was written. */
export function configText(c: CronConfig, payload: string | undefined): string {
	const { template, ...rest } = c as CronConfig & Record<string, unknown>;
	const { payload: _, payload_base64, ...t } = template;
	const whole = { ...rest, template: payload === undefined && payload_base64 ? { ...t, payload_base64 } : t };
	let raw = (payload ?? "").trim();
	if (raw !== "" && indented(raw) === undefined) raw = JSON.stringify(payload); // text of another kind
	const text = JSON.stringify(whole);
	// The template stands at the end.
	return indented(raw === "" ? text : `${text.slice(0, -2)},"payload":${raw}}}`) ?? text;
}

/**
 * configOf is what a form asks for. What the form does not show of the cron that it began from stays. `bytes` writes the payload: it
 * goes as it was typed.
 */
export function configOf(base: Cron | undefined, f: Form, bytes: (text: string) => string): CronConfig {
	const was = base && formOf(base, f.payload);
	const settings = base ? settingsOf(base) : undefined;
	const template: Record<string, unknown> = { ...settings?.template };
	const out: Record<string, unknown> = { ...settings };
	const set = (to: Record<string, unknown>, name: string, value: unknown) => {
		if (value === "" || value === undefined) delete to[name];
		else to[name] = value;
	};
	out["schedule"] = f.schedule.trim();
	set(out, "zone", f.zone.trim());
	set(out, "jitter", f.jitter.trim());
	// A field shows whole seconds: what was not touched stays exact.
	if (f.start !== (was?.start ?? "")) set(out, "start", f.start && new Date(f.start).toISOString());
	if (f.end !== (was?.end ?? "")) set(out, "end", f.end && new Date(f.end).toISOString());
	out["overlap"] = f.overlap;
	out["catch_up"] = f.catchUp;
	set(out, "paused", f.paused || undefined);
	template["queue"] = f.queue.trim();
	set(template, "kind", f.kind.trim());
	set(template, "key", f.key);
	set(template, "priority", f.priority.trim() === "" ? undefined : Number(f.priority));
	set(template, "max_attempts", f.attempts.trim() === "" ? undefined : Number(f.attempts));
	set(template, "lease", f.lease.trim());
	set(template, "tag", f.tag);
	const { labels } = readLabels(f.labels);
	set(template, "labels", Object.keys(labels).length > 0 ? labels : undefined);
	if (f.payload !== undefined) {
		delete template["payload"];
		set(template, "payload_base64", f.payload.trim() && bytes(f.payload.trim()));
	}
	out["template"] = template;
	return out as unknown as CronConfig;
}

/** wrongOf says what is wrong with a form, before the server is asked. What a schedule and a zone may be, the server alone says. */
export function wrongOf(f: Form, json: boolean): Partial<Record<keyof Form, string>> {
	const out: Partial<Record<keyof Form, string>> = {};
	if (f.name !== "" && !isName(f.name)) out.name = "must be letters, digits and . _ : - and at most 128 of them";
	if (f.queue.trim() !== "" && !isName(f.queue.trim())) out.queue = "must be the name of a queue";
	if (f.kind.trim() !== "" && !isName(f.kind.trim())) out.kind = "must be letters, digits and . _ : -";
	for (const key of ["jitter", "lease"] as const)
		if (f[key].trim() !== "" && parseSpan(f[key].trim()) === undefined)
			out[key] = "must be a duration such as 90s or 1h30m";
	if (f.priority.trim() !== "" && !/^[0-9]$/.test(f.priority.trim())) out.priority = "must be from 0 to 9";
	if (f.attempts.trim() !== "" && !/^\d{1,4}$/.test(f.attempts.trim())) out.attempts = "must be a whole number";
	const { wrong } = readLabels(f.labels);
	if (wrong !== undefined) out.labels = `must be lines of name=value: ${wrong}`;
	if (json && f.payload !== undefined && f.payload.trim() !== "")
		try {
			JSON.parse(f.payload);
		} catch (e) {
			out.payload = e instanceof Error ? e.message : "is not JSON";
		}
	return out;
}

/** missing tells whether a form lacks what a cron must have. */
export const missing = (f: Form): boolean => f.name === "" || f.schedule.trim() === "" || f.queue.trim() === "";

/** The field of a form that a refusal of the server is about. */
export function fieldOf(field: string | undefined): keyof Form | undefined {
	const last = (field ?? "").split(".").at(-1) ?? "";
	const names: Record<string, keyof Form> = {
		catch_up: "catchUp",
		payload_base64: "payload",
		max_attempts: "attempts",
		...Object.fromEntries((Object.keys(blank) as (keyof Form)[]).map((k) => [k, k])),
	};
	return names[last];
}
