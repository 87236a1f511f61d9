// Writes src/gen/rest.ts, what the contract says of REST, for the methods whose messages src/gen has. The data is that of the Python SDK:
// the messages as descriptors, and rest.json, which sdk/python/scripts/contract.py wrote of the options of the contract.
import { readFileSync, writeFileSync } from "node:fs";
import descriptors from "ts-proto-descriptors";

const from = new URL("../../python/src/millrace_sdk/_core/", import.meta.url);
const to = new URL("../src/gen/", import.meta.url);
const rest = JSON.parse(readFileSync(new URL("rest.json", from), "utf8"));
const { FileDescriptorSet, FieldDescriptorProto_Type: Type, FieldDescriptorProto_Label: Label } = descriptors;
const set = FileDescriptorSet.decode(readFileSync(new URL("contract.binpb", from)));

const files = ["stream", "task", "batch", "bulk", "cron", "kv", "limiter", "ref_change", "vector"];
const own = set.file.filter((f) => files.some((n) => f.name === `millrace/v1/${n}.proto`));
const code = own.map((f) => readFileSync(new URL(f.name.replace(".proto", ".ts"), to), "utf8")).join("\n");
const prefix = ".millrace.v1.";
const messages = new Map();
const enums = new Map();
const add = (m, within) => {
	messages.set(within + m.name, m);
	for (const n of m.nestedType) add(n, `${within}${m.name}.`);
	for (const e of m.enumType) enums.set(`${within}${m.name}.${e.name}`, e);
};
for (const f of own) {
	for (const m of f.messageType) add(m, "");
	for (const e of f.enumType) enums.set(e.name, e);
}

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase());
const scalars = new Map([
	[Type.TYPE_BOOL, "bool"],
	[Type.TYPE_INT32, "int"],
	[Type.TYPE_UINT32, "uint"],
	[Type.TYPE_INT64, "long"],
	[Type.TYPE_UINT64, "ulong"],
	[Type.TYPE_DOUBLE, "real"],
	[Type.TYPE_FLOAT, "real"],
	[Type.TYPE_BYTES, "bytes"],
	[Type.TYPE_STRING, "text"],
	[Type.TYPE_ENUM, "word"],
]);

/** One field as src/core/restjson.ts reads it: name, many or optional, oneof, form, type, and what JSON does not have as it stands. */
function fieldOf(owner, m, f) {
	const row = rest.fields[`${owner}.${f.name}`] ?? {};
	const name = f.typeName.startsWith(prefix) ? f.typeName.slice(prefix.length) : "";
	const nested = name && messages.get(name);
	const map = nested?.options?.mapEntry ?? false;
	let form = scalars.get(f.type) ?? "message";
	if (map) form = "map";
	else if (f.typeName === ".google.protobuf.Timestamp") form = "time";
	else if (f.typeName === ".google.protobuf.Duration") form = "spantext";
	if (row.form === "exact") form = `x${form}`;
	else if (row.form) form = row.form === "span_text" ? "spantext" : row.form;
	if (form.startsWith("x") && !/^xu?long$/.test(form)) throw new Error(`${owner}.${f.name}: ${form}`);
	const many = f.label === Label.LABEL_REPEATED && !map;
	// The decoder does not tell a oneof's first from none: a member of one has no property of its own in the interface.
	const text = new RegExp(`^export interface ${owner.replaceAll(".", "_")} \\{$([^]*?)^\\}`, "m").exec(code)?.[1];
	const property = text && new RegExp(`^  ${camel(f.name)}\\??:`, "m").test(text);
	const oneof = property ? undefined : m.oneofDecl[f.oneofIndex]?.name;
	if (!property && !text?.includes(`$case: "${camel(f.name)}"`))
		throw new Error(`${owner}.${f.name} is not in src/gen`);
	let out = f.name;
	if (many) out += "*";
	else if (f.proto3Optional || (!many && !map && f.type === Type.TYPE_MESSAGE)) out += "?";
	if (oneof) out += `@${oneof}`;
	if (form !== "text") out += `:${form}`;
	if (form === "message" || form === "word") out += `=${name}`;
	if (row.reserved) out += `!${f.name}`;
	else if (row.other) out += `!${row.other}`;
	if (row.absent || row.reserved) out += "-";
	if (row.inline) out += "^";
	const below = form === "message" ? [name] : [];
	return { out, below, enumName: form === "word" ? name : undefined };
}

const fields = {};
const words = {};
function visit(name) {
	const m = messages.get(name);
	if (!m) throw new Error(`the message ${name} is not in src/gen`);
	if (fields[name] !== undefined) return;
	fields[name] = "";
	const all = m.field.map((f) => fieldOf(name, m, f));
	fields[name] = all.map((f) => f.out).join(" ");
	for (const f of all) {
		for (const b of f.below) visit(b);
		if (f.enumName && words[f.enumName] === undefined) {
			const e = enums.get(f.enumName);
			const first = e.value[0].name;
			// JOB_STATE_UNSPECIFIED names the prefix; without such a value it is the name of the enumeration.
			const cut = first.endsWith("_UNSPECIFIED") ? first.slice(0, -"UNSPECIFIED".length) : `${e.name.toUpperCase()}_`;
			e.value.forEach((v, i) => {
				if (v.number !== i) throw new Error(`${f.enumName} has a gap before ${v.name}`);
			});
			words[f.enumName] = e.value
				.map((v) =>
					(v.name.startsWith(cut) ? v.name.slice(cut.length) : v.name).toLowerCase().replace("unspecified", ""),
				)
				.join(" ");
		}
	}
}

const methods = {};
/** Of messages that are kept the keys of their fields by number, and what they are kept as. */
const kept = {};
for (const name of Object.keys(rest.kept)) {
	if (!messages.has(name)) continue;
	kept[name] = {};
	for (const f of messages.get(name).field) {
		const within = f.typeName.startsWith(prefix) ? f.typeName.slice(prefix.length) : "";
		kept[name][f.number] = camel(f.name) + (rest.kept[within] ? `:${within}` : "");
	}
}
visit("Error");
for (const f of own) {
	for (const s of f.service) {
		for (const m of s.method) {
			const routes = rest.routes[`${s.name}/${m.name}`];
			if (!routes) continue;
			const [request, response] = [m.inputType.slice(prefix.length), m.outputType.slice(prefix.length)];
			if (!messages.has(request) || !messages.has(response)) continue;
			visit(request);
			visit(response);
			methods[`${s.name}/${m.name}`] = { request, response, routes };
		}
	}
}

const sorted = (o) => Object.fromEntries(Object.entries(o).sort(([a], [b]) => (a < b ? -1 : 1)));
const show = (o) =>
	`{\n${Object.entries(sorted(o))
		.map(([k, v]) => `${JSON.stringify(k)}: ${JSON.stringify(v)},\n`)
		.join("")}}`;
writeFileSync(
	new URL("rest.ts", to),
	`// Code generated by scripts/rest.mjs. DO NOT EDIT.

export interface Route {
  verb: string;
  /** Texts, and the names of segments with the paths of their fields. */
  path: (string | string[])[];
  /** Names of parameters, the paths of their fields, and their words. */
  query?: [string, string, string[] | null][];
  /** The field of the header If-Match. */
  match?: string;
  /** The field that is the body; *: all fields that are not skipped. */
  body?: string;
  skip?: string[];
  /** The field of the response that the answer is. */
  answer?: string;
  /** Status 204 is a response without anything. */
  empty?: boolean;
}

/** The fields of messages: name, * for many or ? for optional, @oneof, :form, =type, !the name under which it is refused, - for none in JSON, ^ for fields that stand in its place. */
export const fields: Record<string, string> = ${show(fields)};

/** The messages of which a client keeps what it does not know, as it writes them back: the keys of their fields by number, :type for those that are such messages. */
export const kept: Record<string, Record<number, string>> = ${show(kept)};

/** The words of enumerations by number. */
export const words: Record<string, string> = ${show(words)};

export const methods: Record<string, { request: string; response: string; routes: Route[] }> = ${show(methods)};
`,
);
