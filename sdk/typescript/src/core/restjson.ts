// Messages as the JSON of REST, both ways, and the requests of methods, by the tables of the contract in gen/rest.ts.
//
// JSON that is a client's own, such as a payload, is kept byte for byte: it is cut out of the answer. Whole numbers stay exact. Members and
// words that the contract does not have are passed over: the server may be newer. Of a message that a client reads and writes back they are kept. A
// value of another type than the contract says is an error.
import { fields, kept, methods, type Route, words } from "../gen/rest.js";
import { hasFields, keep, membersOf } from "./kept.js";

/** A message, as the generated code has it. */
export type Message = Record<string, unknown>;

/** A document is not what the contract says. */
export class BadAnswer extends Error {}

/** A request has no route. */
export class BadRequest extends Error {
	constructor(
		readonly field: string,
		message: string,
	) {
		super(message);
	}
}

interface Field {
	/** As the contract has it. */
	name: string;
	/** As the generated code has it. */
	key: string;
	many: boolean;
	/** It has presence: what is set is written, even if it is empty. */
	optional: boolean;
	oneof: string;
	form: string;
	/** Of a message or an enumeration. */
	type: string;
	/** The name under which it is refused as not supported. */
	other: string;
	absent: boolean;
	/** Its fields stand in its place. */
	inline: boolean;
}

const camel = (name: string): string => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());

const known = new Map<string, Field[]>();

/** The fields of a message. */
function fieldsOf(type: string): Field[] {
	let out = known.get(type);
	if (out) return out;
	out = [];
	for (const word of fields[type]!.split(" ")) {
		const m = /^(\w+)([*?]?)(?:@(\w+))?(?::(\w+))?(?:=([\w.]+))?(?:!(\w+))?(-?)(\^?)$/.exec(word);
		if (!m) continue; // a message without fields
		const [, name = "", mark, oneof = "", form = "text", type = "", other = "", absent, inline] = m;
		out.push({
			name,
			key: camel(name),
			many: mark === "*",
			optional: mark === "?" || oneof !== "",
			oneof: camel(oneof),
			form,
			type,
			other,
			absent: absent !== "",
			inline: inline !== "",
		});
	}
	known.set(type, out);
	return out;
}

/** The type of a field that is a message. */
export const typeOf = (type: string, name: string): string => fieldsOf(type).find((f) => f.name === name)!.type;

const spelled = new Map<string, string[]>();

/** The words of an enumeration by number. */
function wordsOf(type: string): string[] {
	let out = spelled.get(type);
	if (!out) {
		out = words[type]!.split(" ");
		spelled.set(type, out);
	}
	return out;
}

// Requests.

/** What a field has; undefined: nothing that is written. */
function held(m: Message, f: Field): unknown {
	if (f.oneof) {
		const one = m[f.oneof] as { $case: string; value: unknown } | undefined;
		return one?.$case === f.key ? one.value : undefined;
	}
	const v = m[f.key];
	if (f.optional || v === undefined) return v;
	const empty =
		v === "" || v === 0 || v === 0n || v === false || (typeof v === "object" && v !== null && lengthOf(v) === 0);
	return empty ? undefined : v;
}

const lengthOf = (v: object): number =>
	Array.isArray(v) || v instanceof Uint8Array ? v.length : Object.keys(v).length;

/** The members that were kept, but for words that were replaced since. */
function* keptOf(type: string, m: Message): Generator<string> {
	if (hasFields(m)) throw new BadRequest("config", "has a field that is not known, which REST cannot carry");
	for (const [name, raw] of membersOf(m)) {
		const f = fieldsOf(type).find((one) => one.name === name);
		if (!f || held(m, f) === undefined) yield `${JSON.stringify(name)}:${raw}`;
	}
}

/** Writes a message as an object, without the fields that are to be skipped. */
export function write(type: string, m: Message, skip: readonly string[] = []): string {
	const parts: string[] = [];
	for (const f of fieldsOf(type)) {
		if ((f.absent && !f.other) || skip.includes(f.name)) continue;
		const v = held(m, f);
		if (v === undefined) continue;
		if (f.other) parts.push(`"${f.other}":true`);
		else if (f.many && f.form === "real") parts.push(`"${f.name}":${packed(v as number[])}`);
		else if (f.many) parts.push(`"${f.name}":[${(v as unknown[]).map((one) => text(f, one)).join(",")}]`);
		else if (f.form === "bytes" || f.form === "content") parts.push(`"${f.name}_base64":${text(f, v)}`);
		else parts.push(`"${f.name}":${text(f, v)}`);
	}
	if (kept[type]) parts.push(...keptOf(type, m));
	return `{${parts.join(",")}}`;
}

/** Numbers as bytes: as text they would be twice as long, and some readers would round them. */
function packed(values: number[]): string {
	const b = Buffer.alloc(4 * values.length);
	values.forEach((v, i) => {
		b.writeFloatLE(v, 4 * i);
	});
	return `"${b.toString("base64")}"`;
}

/** A text as gRPC carries it: half of a pair of characters is replaced. */
const whole = (s: string): string => (/[\ud800-\udfff]/.test(s) ? Buffer.from(s).toString() : s);
const quote = (s: string): string => JSON.stringify(whole(s));

function text(f: Field, v: unknown): string {
	switch (f.form) {
		case "message":
			return write(f.type, v as Message);
		case "bytes":
		case "content": // any bytes then arrive as they are, whatever their type says
			return `"${Buffer.from(v as Uint8Array).toString("base64")}"`;
		case "xlong": // as text, so that nothing between here and the server rounds it
		case "xulong":
			return `"${v}"`;
		case "bool":
		case "int":
		case "uint":
		case "long":
		case "ulong":
			return String(v);
		case "real":
			return Number.isFinite(v) ? String(v) : '"NaN"'; // which no field takes: the server refuses it by its name
		case "word":
			return `"${wordsOf(f.type)[v as number] ?? `unknown-${v}`}"`;
		case "hex":
			return `"${Buffer.from(v as Uint8Array).toString("hex")}"`;
		case "object":
			return Buffer.from(v as Uint8Array).toString();
		case "spantext":
			return `"${spanText(v as Pair)}"`;
		case "time":
			return `"${timeText(v as Pair)}"`;
		case "map": {
			const all = Object.entries(v as Record<string, string>);
			return `{${all.map(([k, one]) => `${quote(k)}:${quote(one)}`).join(",")}}`;
		}
		case "prose": // text for people, of which REST refuses one character that the contract allows
			return quote((v as string).replaceAll("\0", "\ufffd"));
	}
	return quote(v as string);
}

/** A Duration or a Timestamp. */
interface Pair {
	seconds: bigint;
	nanos: number;
}

const fraction = (nanos: bigint | number): string =>
	Number(nanos) === 0 ? "" : `.${String(nanos).padStart(9, "0").replace(/0+$/, "")}`;

/** Writes a Duration, such as 1.5s. */
export function spanText(d: Pair): string {
	const all = BigInt(d.seconds) * 1_000_000_000n + BigInt(d.nanos);
	const size = all < 0n ? -all : all;
	return `${all < 0n ? "-" : ""}${size / 1_000_000_000n}${fraction(size % 1_000_000_000n)}s`;
}

/** Writes a Timestamp as RFC 3339 has it. One beyond all dates is left to the server to refuse. */
export function timeText(t: Pair): string {
	const seconds = Number(t.seconds);
	if (seconds < -62_135_596_800 || seconds > 253_402_300_799) return `${t.seconds} s since 1970`;
	return `${new Date(seconds * 1000).toISOString().slice(0, 19)}${fraction(t.nanos)}Z`;
}

/** The request of a method, ready to be sent. */
export interface Prepared {
	verb: string;
	/** Escaped. */
	path: string;
	query: [string, string | Uint8Array][];
	body: string | undefined;
	/** Of the header If-Match; empty: there is none. */
	match: string;
	route: Route;
}

/** Writes the request of a method by the first of its routes that it has all segments for. It throws BadRequest. */
export function prepare(method: string, m: Message): Prepared {
	const known = methods[method];
	let first: BadRequest | undefined;
	for (const route of known?.routes ?? []) {
		let path = "";
		try {
			for (const part of route.path)
				path += typeof part === "string" ? part : segment(known!.request, m, part[0]!, part[1]!);
		} catch (e) {
			if (!(e instanceof BadRequest)) throw e;
			first ??= e; // a shorter path may do
			continue;
		}
		const query = (route.query ?? []).flatMap(([name, at, list]) => parameters(known!.request, m, name, at, list));
		let match = "";
		if (route.match) {
			const found = find(known!.request, m, route.match);
			if (found && found.value !== undefined) match = `"${found.value}"`;
		}
		let body: string | undefined;
		if (route.body === "*") body = write(known!.request, m, route.skip);
		else if (route.body) {
			const found = find(known!.request, m, route.body)!;
			body = write(found.field.type, (found.value ?? {}) as Message);
		}
		return { verb: route.verb, path, query, body, match, route };
	}
	throw first ?? new BadRequest("", `${method} has no route over REST`);
}

/** The field that a path names, and its value; undefined: a message on the way is not set. */
function find(type: string, m: Message, path: string): { field: Field; value: unknown } | undefined {
	const [head, ...below] = path.split(".");
	const field = fieldsOf(type).find((f) => f.name === head)!;
	const value = held(m, field);
	if (below.length === 0) return { field, value };
	return value === undefined ? undefined : find(field.type, value as Message, below.join("."));
}

function segment(type: string, m: Message, name: string, path: string): string {
	const v = find(type, m, path)?.value as string | Uint8Array | undefined;
	if (v === undefined)
		throw new BadRequest(name, ["keyspace", "key", "tenant"].includes(name) ? "must not be empty" : "is required");
	const plain = typeof v === "string" ? v : Buffer.from(v).toString("latin1");
	if (plain === "." || plain === "..") return "%2E".repeat(plain.length); // a proxy would resolve it
	return escaped(v, /[\w.~$&+=:@-]/);
}

/** Percent encoding of all bytes but those to keep. */
export function escaped(v: string | Uint8Array, keep = /[\w.~-]/): string {
	let out = "";
	for (const byte of Buffer.from(v as string)) {
		const c = String.fromCharCode(byte);
		out += byte < 128 && keep.test(c) ? c : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
	}
	return out;
}

/** The parameters that a field gives: none at its default. */
function parameters(
	type: string,
	m: Message,
	name: string,
	path: string,
	list: string[] | null,
): [string, string | Uint8Array][] {
	const found = find(type, m, path);
	if (found?.value === undefined) return [];
	const { field, value } = found;
	if (field.many) return (value as unknown[]).map((one) => [name, String(one)]);
	switch (field.form) {
		case "bool":
			return value ? [[name, list?.[0] ?? "true"]] : [];
		case "word":
			return [[name, list?.[value as number] ?? "unknown"]];
		case "time":
			return [[name, timeText(value as Pair)]];
		case "spantext":
			return [[name, spanText(value as Pair)]];
	}
	return [[name, value instanceof Uint8Array ? value : String(value)]];
}

// Answers.

/** A message without anything. */
export function empty(type: string): Message {
	const out: Message = {};
	for (const f of fieldsOf(type)) {
		if (f.oneof) out[f.oneof] = undefined;
		else if (f.many) out[f.key] = [];
		else if (f.optional) out[f.key] = undefined;
		else out[f.key] = zero(f.form);
	}
	return out;
}

function zero(form: string): unknown {
	switch (form) {
		case "bool":
			return false;
		case "int":
		case "uint":
		case "real":
		case "word":
			return 0;
		case "long":
		case "ulong":
		case "xlong":
		case "xulong":
		case "span":
		case "moment":
			return 0n;
		case "bytes":
		case "content":
		case "object":
		case "hex":
			return Buffer.alloc(0);
		case "map":
			return {};
	}
	return "";
}

interface Member {
	field: Field;
	/** Of bytes: base64. */
	as64: boolean;
	/** The field in whose place it stands. */
	inside: Field | undefined;
}

const plans = new Map<string, Map<string, Member>>();

/** The members of an object by their names. */
function planOf(type: string): Map<string, Member> {
	let plan = plans.get(type);
	if (plan) return plan;
	plan = new Map();
	const add = (type: string, inside: Field | undefined): void => {
		for (const field of fieldsOf(type)) {
			if (field.inline) add(field.type, field);
			else if (!field.absent && !(field.type === "At" && !field.many)) {
				// The names of the contract carry a unit that the value in JSON has itself, or lack one that it needs.
				let { name } = field;
				if (field.form === "span") name = name.replace(/_ms$/, "");
				else if (field.form === "moment") name = name.replace(/_ms$/, "_at");
				else if (field.form === "millis") name += "_ms";
				plan!.set(name, { field, as64: false, inside });
				if (field.form === "bytes" || field.form === "content")
					plan!.set(`${name}_base64`, { field, as64: true, inside });
			}
		}
	};
	add(type, undefined);
	plans.set(type, plan);
	return plan;
}

/** Passes over a document that is known to be whole. */
class Cursor {
	at = 0;

	constructor(readonly text: string) {
		this.space();
	}

	get next(): string {
		return this.text[this.at] ?? "";
	}

	space(): void {
		while (this.text.charCodeAt(this.at) <= 32) this.at++;
	}

	/** Takes a character that must follow, and the space after it. */
	take(c: string): void {
		if (this.next !== c) throw new BadAnswer(`${c} is wanted`);
		this.at++;
		this.space();
	}

	/** Passes over one value, and returns it as it stands. */
	raw(): string {
		const from = this.at;
		let depth = 0;
		do {
			const c = this.text.charCodeAt(this.at);
			if (c === 34) this.#string();
			else if (c === 123 || c === 91) {
				depth++;
				this.at++;
			} else if (c === 125 || c === 93) {
				depth--;
				this.at++;
			} else if (depth > 0) this.at++;
			else while (this.at < this.text.length && !/[,\]}\s]/.test(this.next)) this.at++;
		} while (depth > 0 && this.at < this.text.length);
		const out = this.text.slice(from, this.at);
		this.space();
		return out;
	}

	#string(): void {
		for (let end = this.at; ; ) {
			end = this.text.indexOf('"', end + 1);
			let back = end;
			while (this.text[back - 1] === "\\") back--;
			if ((end - back) % 2 === 0) {
				this.at = end + 1;
				return;
			}
		}
	}

	/** Passes an object: f is called where the value of each member begins, and passes over it. */
	members(f: (name: string) => void): void {
		this.take("{");
		while (this.next !== "}") {
			const name = JSON.parse(this.raw()) as string;
			this.take(":");
			f(name);
			if (this.next !== "}") this.take(",");
		}
		this.take("}");
	}

	elements(f: () => void): void {
		this.take("[");
		while (this.next !== "]") {
			f();
			if (this.next !== "]") this.take(",");
		}
		this.take("]");
	}
}

/** Reads an object as a message. It throws BadAnswer. */
export function read(text: string, type: string): Message {
	try {
		JSON.parse(text); // it is whole, which what follows relies on
		return object(new Cursor(text), type);
	} catch (e) {
		if (e instanceof BadAnswer) throw e;
		throw new BadAnswer(`the answer is not what the contract says: ${(e as Error).message}`);
	}
}

/** One member of an object as it stands; undefined where there is none. */
export function member(text: string, name: string): string | undefined {
	let out: string | undefined;
	try {
		JSON.parse(text);
		const c = new Cursor(text);
		c.members((n) => {
			const raw = c.raw();
			if (n === name && raw !== "null") out = raw;
		});
	} catch {
		return undefined;
	}
	return out;
}

function object(c: Cursor, type: string): Message {
	const plan = planOf(type);
	const out = empty(type);
	c.members((name) => {
		const p = plan.get(name);
		// null counts as left out, but it is a value that a client may store.
		if (!p || (c.next === "n" && (p.as64 || p.field.form !== "content"))) {
			const raw = c.raw();
			if (!p && kept[type] && raw !== "null") keep(out, name, raw);
			return;
		}
		if (p.field.form === "word" && !p.field.many && kept[type]) {
			const raw = c.raw();
			const n = wordsOf(p.field.type).indexOf(textOf(JSON.parse(raw)));
			if (n < 0) keep(out, name, raw);
			else out[p.field.key] = n;
			return;
		}
		let into = out;
		if (p.inside) {
			into = (out[p.inside.key] as Message | undefined) ?? empty(p.inside.type);
			out[p.inside.key] = into;
		}
		const f = p.field;
		const one = (): unknown => (f.form === "message" ? object(c, f.type) : scalar(c.raw(), p));
		let value: unknown;
		if (f.many) {
			const list: unknown[] = [];
			c.elements(() => list.push(one()));
			value = list;
		} else value = one();
		if (f.oneof) into[f.oneof] = { $case: f.key, value };
		else into[f.key] = value;
	});
	return out;
}

const base64 = /^[A-Za-z0-9+/]*={0,2}$/;

function scalar(raw: string, p: Member): unknown {
	const f = p.field;
	switch (f.form) {
		case "content":
		case "object":
			if (!p.as64) return Buffer.from(raw);
			break;
		case "int":
		case "uint":
			return Number(wholeNumber(raw, f.form === "uint", 32));
		case "long":
		case "xlong":
			return wholeNumber(raw, false, 64);
		case "ulong":
		case "xulong":
			return wholeNumber(raw, true, 64);
	}
	const v: unknown = JSON.parse(raw);
	switch (f.form) {
		case "bool":
			if (typeof v !== "boolean") throw new BadAnswer("true or false is wanted");
			return v;
		case "real": {
			const x = typeof v === "boolean" || v === "" ? Number.NaN : Number(v);
			if (!Number.isFinite(x)) throw new BadAnswer("a number is wanted");
			return x;
		}
		case "map":
			if (typeof v !== "object" || v === null || Array.isArray(v)) throw new BadAnswer("an object is wanted");
			return Object.fromEntries(Object.entries(v).map(([k, one]) => [whole(k), whole(textOf(one))]));
		case "millis":
			return pairOf(wholeNumber(raw, false, 64) * 1_000_000n);
	}
	const s = textOf(v);
	switch (f.form) {
		case "bytes":
		case "content":
			if (!p.as64) return Buffer.from(s);
			if (s.length % 4 !== 0 || !base64.test(s)) throw new BadAnswer("base64 is wanted");
			return Buffer.from(s, "base64");
		case "word":
			return Math.max(wordsOf(f.type).indexOf(s), 0);
		case "hex":
			if (!/^(?:[0-9a-f]{2})*$/i.test(s)) throw new BadAnswer("hexadecimal digits are wanted");
			return Buffer.from(s, "hex");
		case "span": {
			const ms = nanosOf(s) / 1_000_000n;
			return ms > 0n ? ms : 0n;
		}
		case "moment": {
			const t = momentOf(s);
			return t.seconds * 1000n + BigInt(Math.floor(t.nanos / 1e6));
		}
		case "time":
			return momentOf(s);
		case "spantext":
			return pairOf(nanosOf(s));
	}
	return whole(s);
}

function textOf(v: unknown): string {
	if (typeof v !== "string") throw new BadAnswer("a text is wanted");
	return v;
}

/** Reads a whole number, which may stand in a text. */
function wholeNumber(raw: string, unsigned: boolean, bits: number): bigint {
	const m = /^("?)(-?\d{1,20})\1$/.exec(raw);
	if (!m) throw new BadAnswer("a whole number is wanted");
	const v = BigInt(m[2]!);
	if ((unsigned ? BigInt.asUintN(bits, v) : BigInt.asIntN(bits, v)) !== v) throw new BadAnswer("a number is too large");
	return v;
}

const nanosOfUnit: Record<string, bigint> = {
	ns: 1n,
	us: 1000n,
	µs: 1000n,
	μs: 1000n,
	ms: 1_000_000n,
	s: 1_000_000_000n,
	m: 60_000_000_000n,
	h: 3_600_000_000_000n,
};

/** Reads a duration such as 1m30s, in nanoseconds. */
export function nanosOf(text: string): bigint {
	const rest = text.replace(/^[+-]/, "");
	if (rest === "0") return 0n;
	const part = /(?:(\d+)\.?(\d*)|\.(\d+))(ns|us|µs|μs|ms|s|m|h)/y;
	let total = 0n;
	while (part.lastIndex < rest.length) {
		const m = part.exec(rest);
		if (!m) break;
		const unit = nanosOfUnit[m[4]!]!;
		const digits = (m[2] || m[3] || "").slice(0, 18);
		total += BigInt(m[1] ?? 0) * unit + (BigInt(digits || 0) * unit) / 10n ** BigInt(digits.length);
		if (part.lastIndex === rest.length) return text.startsWith("-") ? -total : total;
	}
	throw new BadAnswer(`${JSON.stringify(text)} is not a duration`);
}

const pairOf = (nanos: bigint): Pair => ({
	seconds: nanos / 1_000_000_000n,
	nanos: Number(nanos % 1_000_000_000n),
});

/** Reads a time of RFC 3339. */
export function momentOf(text: string): Pair {
	const m = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)$/.exec(text);
	// A leap second counts as the one after.
	const ms = m ? Date.parse(`${m[1]}T${m[2]}:00Z`) : Number.NaN;
	if (!m || Number.isNaN(ms)) throw new BadAnswer(`${JSON.stringify(text)} is not a time`);
	let seconds = ms / 1000 + Number(m[3]);
	if (!/[Zz]/.test(m[5]!)) {
		const away = Number(m[5]!.slice(1, 3)) * 3600 + Number(m[5]!.slice(4)) * 60;
		seconds -= m[5]![0] === "-" ? -away : away;
	}
	return { seconds: BigInt(seconds), nanos: Number((m[4] ?? "").padEnd(9, "0").slice(0, 9)) };
}
