// Effects as JSON, in the form that commands of millrace work write: what tests compare.

import type { Timestamp } from "./gen/google/protobuf/timestamp.js";
import { RefChangeKind } from "./gen/millrace/v1/ref_change.js";
import { AfterOn, OnDepFailure, type Op, TaskSpec } from "./gen/millrace/v1/task.js";
import { fromDuration, fromTimestamp } from "./time.js";

/** One effect. Bytes that are not UTF-8 are in a field with _base64 behind its name. */
export type Effect = { op: string } & Record<string, unknown>;

const utf8 = new TextDecoder("utf-8", { fatal: true });

function put(out: Record<string, unknown>, name: string, bytes: Uint8Array): void {
	try {
		out[name] = utf8.decode(bytes);
	} catch {
		out[`${name}_base64`] = Buffer.from(bytes).toString("base64");
	}
}

/** A time in RFC 3339, without a fraction where it has none. */
const timeOf = (t: Timestamp): string => fromTimestamp(t)!.toISOString().replace(".000Z", "Z");

const seconds = (ms: number): string => `${ms / 1000}s`;

function taskEffect(s: TaskSpec): Effect {
	return Object.assign({ op: "task_create", id: s.id }, taskFields(s));
}

function taskFields(s: TaskSpec): Record<string, unknown> {
	const out: Record<string, unknown> = { queue: s.queue, kind: s.kind };
	if (s.contentType === "application/json") out.payload = JSON.parse(s.payload.toString("utf8"));
	else {
		out.payload_base64 = s.payload.toString("base64");
		if (s.contentType !== "application/octet-stream") out.content_type = s.contentType;
	}
	if (s.tag) out.tag = s.tag;
	if (s.key) out.key = s.key;
	if (s.cost) out.cost = s.cost;
	if (s.limiters.length > 0) out.limiters = s.limiters;
	if (s.priority) out.priority = s.priority;
	if (s.delay) out.delay = seconds(fromDuration(s.delay));
	if (s.runAt) out.run_at = timeOf(s.runAt);
	if (s.headers.length > 0) out.headers = s.headers.map((h) => ({ name: h.name, value: h.value }));
	if (Object.keys(s.labels).length > 0) out.labels = s.labels;
	if (s.after.length > 0)
		out.after = s.after.map((a) => (a.on === AfterOn.TERMINAL ? { id: a.id, on: "terminal" } : { id: a.id }));
	if (s.onDepFailure > OnDepFailure.HOLD) out.on_dep_failure = OnDepFailure[s.onDepFailure]!.toLowerCase();
	if (s.batch) out.batch = s.batch;
	if (s.unique) out.unique = { key: s.unique.key };
	if (s.maxAttempts) out.max_attempts = s.maxAttempts;
	if (s.maxCrashes) out.max_crashes = s.maxCrashes;
	if (s.lease) out.lease = seconds(fromDuration(s.lease));
	if (s.maxRun) out.max_run = seconds(fromDuration(s.maxRun));
	return out;
}

/** Shows an op. */
export function effectOf(op: Op): Effect {
	const x = op.op;
	switch (x?.$case) {
		case "kvPut": {
			const out: Effect = { op: "kv_put", keyspace: x.value.keyspace };
			put(out, "key", x.value.key);
			put(out, "value", x.value.value);
			if (x.value.ifRev !== undefined) out.if_rev = Number(x.value.ifRev);
			if (x.value.ifAbsent) out.if_absent = true;
			return out;
		}
		case "kvDelete": {
			const out: Effect = { op: "kv_delete", keyspace: x.value.keyspace };
			put(out, "key", x.value.key);
			if (x.value.ifRev !== undefined) out.if_rev = Number(x.value.ifRev);
			return out;
		}
		case "kvAdd": {
			const out: Effect = { op: "kv_add", keyspace: x.value.keyspace };
			put(out, "key", x.value.key);
			out.delta = Number(x.value.delta);
			if (x.value.floor !== undefined) out.floor = Number(x.value.floor);
			if (x.value.ceiling !== undefined) out.ceiling = Number(x.value.ceiling);
			if (x.value.ifRev !== undefined) out.if_rev = Number(x.value.ifRev);
			return out;
		}
		case "kvDeleteRange": {
			const out: Effect = { op: "kv_delete_range", keyspace: x.value.keyspace };
			if (x.value.prefix.length > 0) put(out, "prefix", x.value.prefix);
			if (x.value.from.length > 0) put(out, "from", x.value.from);
			if (x.value.to.length > 0) put(out, "to", x.value.to);
			if (x.value.prefix.length + x.value.from.length + x.value.to.length === 0) out.all = true;
			return out;
		}
		case "refTransaction": {
			const c = x.value.changes[0]!;
			const out: Effect = { op: "ref_update", repo: x.value.repo, ref: c.name };
			const zero = /^0+$/;
			if (c.old !== undefined) out.old = zero.test(c.old) ? "" : c.old;
			out.new = c.kind === RefChangeKind.DELETE || zero.test(c.new) ? "" : c.new;
			if (x.value.tag) out.tag = x.value.tag;
			return out;
		}
		case "vectorUpsert": {
			const p = x.value.point!;
			const out: Effect = { op: "vector_upsert", collection: x.value.collection, id: p.id };
			if (p.vector.length > 0) out.vector = p.vector;
			if (p.model) out.model = p.model;
			if (p.payload.length > 0) out.payload = JSON.parse(p.payload.toString("utf8"));
			if (p.ifVersion) out.if_version = p.ifVersion;
			if (p.ifAbsent) out.if_absent = true;
			return out;
		}
		case "vectorDelete":
			return { op: "vector_delete", collection: x.value.collection, id: x.value.id };
		case "taskCreate":
			return taskEffect(x.value);
		case "taskCancel": {
			const out: Effect = { op: "task_cancel", id: x.value.id };
			if (x.value.reason) out.reason = x.value.reason;
			if (x.value.force) out.force = true;
			return out;
		}
		case "batchOpen": {
			const out: Effect = { op: "batch_open", id: x.value.id };
			if (Object.keys(x.value.labels).length > 0) out.labels = x.value.labels;
			if (x.value.onDone) out.on_done = taskFields(TaskSpec.fromPartial(x.value.onDone as never));
			if (x.value.onSuccess) out.on_success = taskFields(TaskSpec.fromPartial(x.value.onSuccess as never));
			return out;
		}
		case "batchSeal":
			return { op: "batch_seal", id: x.value.id };
		case "batchCancel": {
			const out: Effect = { op: "batch_cancel", id: x.value.id };
			if (x.value.reason) out.reason = x.value.reason;
			if (x.value.rate) out.rate = x.value.rate;
			if (x.value.force) out.force = true;
			return out;
		}
		case "queuePause": {
			const out: Effect = { op: "queue_pause", queue: x.value.queue };
			if (x.value.resume) out.resume = true;
			if (x.value.reason) out.reason = x.value.reason;
			if (x.value.until) out.until = timeOf(x.value.until);
			return out;
		}
	}
	return { op: x?.$case ?? "" };
}
