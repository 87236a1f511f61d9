// Effects, jobs and options as the agent's protocol writes them.
import { type Changes, type Codec, type FollowUp, type Job, job, type Schema } from "../src/index.js";

export type Fields = Record<string, unknown>;

/** What this SDK, or its agent, does not have. */
export class Unsupported extends Error {}

/** JSON whose text is the value: nothing reads its numbers. */
export const exact: Codec<string> = {
	contentType: "application/json",
	encode: (v) => Buffer.from(v),
	decode: (b) => {
		const text = Buffer.from(b).toString("utf8");
		JSON.parse(text);
		return text;
	},
};

/** A schema for JSON texts of objects, from the types of their fields. */
function schemaOf(fields: Record<string, string>): Schema<unknown, unknown> {
	const fits: Record<string, (v: unknown) => boolean> = {
		int: (v) => Number.isInteger(v),
		str: (v) => typeof v === "string",
		bool: (v) => typeof v === "boolean",
	};
	const validate: Schema["~standard"]["validate"] = (text) => {
		const value = JSON.parse(text as string) as Record<string, unknown>;
		const wrong = Object.entries(fields).filter(([name, type]) => !fits[type]?.(value[name]));
		if (wrong.length === 0) return { value: text };
		return { issues: wrong.map(([name, type]) => ({ message: `must be ${type}`, path: [name] })) };
	};
	return { "~standard": { version: 1, vendor: "agent", validate } };
}

export function jobOf(s: Fields): Job<unknown, unknown, unknown> {
	const o: Record<string, unknown> = {};
	if (s.queue !== undefined) o.queue = s.queue;
	if (s.attempts !== undefined) o.attempts = s.attempts;
	if (s.lease_ms !== undefined) o.lease = s.lease_ms;
	if (s.max_run_ms !== undefined) o.maxRun = s.max_run_ms;
	if (s.retry) {
		const r = s.retry as Fields;
		o.retry = { base: r.base_ms, max: r.max_ms };
	}
	if ((s.codec ?? "json") === "json") o.codec = exact;
	if (s.schema) o.input = schemaOf(s.schema as Record<string, string>);
	return job(s.job as string, o);
}

export function optionsOf(s: Fields): Fields {
	const o: Fields = {};
	for (const [from, to] of [
		["id", "id"],
		["tag", "tag"],
		["task_key", "key"],
		["cost", "cost"],
		["limiters", "limiters"],
		["batch", "batch"],
		["delay_ms", "delay"],
		["priority", "priority"],
		["unique", "unique"],
		["until", "uniqueUntil"],
		["on_conflict", "onConflict"],
		["headers", "headers"],
		["labels", "labels"],
		["on_dep_failure", "onDepFailure"],
		["timeout_ms", "timeout"],
	] as const) {
		if (s[from] !== undefined) o[to] = s[from];
	}
	if (s.after) o.after = (s.after as Fields[]).map((a) => ({ task: a.id, on: a.on ?? "completed" }));
	return o;
}

const bytesIn = (o: Fields, name: string): string | Buffer =>
	o[`${name}_base64`] !== undefined ? Buffer.from(o[`${name}_base64`] as string, "base64") : (o[name] as string);

const rev = (o: Fields): { ifRev?: bigint } => (o.if_rev === undefined ? {} : { ifRev: BigInt(o.if_rev as number) });

/** The fields of an op that are there, by other names. */
export function some(o: Fields, names: Record<string, string>): Fields {
	return Object.fromEntries(
		Object.entries(names)
			.filter(([from]) => o[from] !== undefined)
			.map(([from, to]) => [to, o[from]]),
	);
}

function followUpOf(o: unknown): FollowUp | undefined {
	if (o === undefined) return undefined;
	const f = o as Fields;
	const bytes = f.payload_base64 !== undefined;
	const one = jobOf({ job: f.kind ?? f.queue, queue: f.queue, codec: bytes ? "bytes" : "json" });
	const args = bytes ? Buffer.from(f.payload_base64 as string, "base64") : JSON.stringify(f.payload ?? null);
	return one.followUp(args, some(f, { priority: "priority", labels: "labels", tag: "tag", key: "key" }));
}

/** Adds one effect: at once, or where a promise is returned, when that resolves. */
export function apply(o: Fields, tx: Changes): Promise<unknown> | undefined {
	const kv = tx.kv((o.keyspace as string) ?? "");
	switch (o.op) {
		case "kv_put":
			kv.put(bytesIn(o, "key"), bytesIn(o, "value"), { ...rev(o), ...some(o, { if_absent: "ifAbsent" }) });
			return undefined;
		case "kv_delete":
			kv.delete(bytesIn(o, "key"), rev(o));
			return undefined;
		case "kv_add":
			kv.add(bytesIn(o, "key"), o.delta as number, { ...rev(o), ...some(o, { floor: "floor", ceiling: "ceiling" }) });
			return undefined;
		case "kv_delete_range":
			if (o.from !== undefined || o.to !== undefined) kv.deleteRange(some(o, { from: "from", to: "to" }));
			else kv.deleteRange(o.all ? { all: true } : { prefix: (o.prefix as string) ?? "" });
			return undefined;
		case "ref_update":
			tx.repo(o.repo as string, some(o, { tag: "tag" })).update(
				o.ref as string,
				o.new as string,
				o.old as string | undefined,
			);
			return undefined;
		case "vector_upsert": {
			const names = {
				vector: "vector",
				model: "model",
				payload: "payload",
				if_version: "ifVersion",
				if_absent: "ifAbsent",
			};
			tx.collection(o.collection as string).upsert(o.id as string, some(o, names));
			return undefined;
		}
		case "vector_delete":
			tx.collection(o.collection as string).delete(o.id as string);
			return undefined;
		case "task_create": {
			const spec = { job: o.kind ?? o.queue, queue: o.queue };
			const options = { ...optionsOf(o), ...some(o, { delay: "delay", key: "key" }) };
			if (o.unique !== undefined) {
				const u = o.unique as Fields;
				Object.assign(options, { unique: u.key }, some(u, { on_conflict: "onConflict", until: "uniqueUntil" }));
			}
			if (o.payload_base64 !== undefined) {
				jobOf({ ...spec, codec: "bytes" }).addTx(tx, Buffer.from(o.payload_base64 as string, "base64"), options);
			} else jobOf(spec).addTx(tx, JSON.stringify(o.payload ?? null), options);
			return undefined;
		}
		case "task_cancel":
			tx.cancelTask(o.id as string, some(o, { reason: "reason", force: "force" }));
			return undefined;
		case "queue_pause":
			if (o.resume) tx.resumeQueue(o.queue as string);
			else {
				const until = o.until === undefined ? {} : { until: new Date(o.until as string) };
				tx.pauseQueue(o.queue as string, { ...some(o, { reason: "reason", for_ms: "for" }), ...until });
			}
			return undefined;
		case "batch_open":
			return tx.openBatch({
				...some(o, { id: "id", tag: "tag", labels: "labels" }),
				onDone: followUpOf(o.on_done),
				onSuccess: followUpOf(o.on_success),
			});
		case "batch_seal":
			tx.sealBatch(o.id as string);
			return undefined;
		case "batch_cancel":
			tx.cancelBatch(o.id as string, some(o, { reason: "reason", rate: "rate", force: "force" }));
			return undefined;
	}
	throw new Unsupported();
}
