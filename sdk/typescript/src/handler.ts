// What becomes of a handler: its result and effects, or its error, as the settle of the attempt.
import { decode, encode } from "./content.js";
import { Fatal, MillraceError, messageOf, millis, Release, RetryIn, Snooze } from "./errors.js";
import type { SettleItem } from "./gen/millrace/v1/task.js";
import type { Binding } from "./job.js";
import { validate } from "./schema.js";
import type { Task } from "./task.js";
import { toDuration } from "./time.js";

const cut = (s: string, most: number): string => {
	const text = s.replaceAll("\0", "\ufffd");
	if (Buffer.byteLength(text) <= most) return text;
	return Buffer.from(text)
		.subarray(0, most)
		.toString("utf8")
		.replace(/\ufffd+$/, "");
};

/** Why a handler's signal is aborted. */
export class Cancelled extends Error {
	constructor(readonly cancelReason: string) {
		super("the task's cancel was asked for");
		this.name = "Cancelled";
	}
}

export class LeaseLost extends Error {
	constructor() {
		super("the lease is lost");
		this.name = "LeaseLost";
	}
}

export class Stopped extends Error {
	constructor() {
		super("the worker stops");
		this.name = "Stopped";
	}
}

/** An error with the code invalid_args ends the task: trying again does not change its arguments. */
function invalidArgs(message: string): Fatal {
	return new Fatal(Object.assign(new Error(message), { code: "invalid_args" }));
}

const isPromise = (v: unknown): v is PromiseLike<unknown> =>
	typeof v === "object" && v !== null && typeof (v as PromiseLike<unknown>).then === "function";

/** Runs a handler once. What it returns or throws is the outcome of the attempt. */
export async function invoke(b: Binding, t: Task): Promise<{ result: unknown }> {
	const o = b.job.options;
	let args: unknown;
	try {
		args = decode(t.payload, t.contentType, o.codec);
	} catch (e) {
		throw invalidArgs(`the arguments cannot be read: ${messageOf(e)}`);
	}
	const checked = validate(o.input, args);
	const v = checked instanceof Promise ? await checked : checked;
	if ("problem" in v) throw invalidArgs(v.problem);
	const run = b.run(t, v.value);
	const result = isPromise(run) ? await run : run;
	const valid = validate(o.output, result);
	const out = valid instanceof Promise ? await valid : valid;
	if ("problem" in out) throw new Error(`the result is not valid: ${out.problem}`);
	return { result };
}

const base = (t: Task): Pick<SettleItem, "id" | "token" | "effects"> => ({
	id: t.id,
	token: t.token,
	effects: undefined,
});

/** The settle of an attempt that completed. */
export function completed(b: Binding, t: Task, result: unknown): { item: SettleItem; bytes: number } {
	const c = encode(result, b.job.options.codec, "result");
	const item: SettleItem = {
		...base(t),
		outcome: { $case: "complete", value: { result: c.bytes, resultType: c.type } },
	};
	let bytes = c.bytes.length + 100;
	if (t.fx.ops.length + t.fx.conditions.length > 0) {
		t.fx.place();
		// Without a function that builds them again, a refusal fails the attempt.
		item.effects = { conditions: [...t.fx.conditions], ops: [...t.fx.ops], failOnRefusal: t.refused === undefined };
		for (const op of t.fx.ops) {
			bytes += 100;
			if (op.op?.$case === "kvPut") bytes += op.op.value.value.length + op.op.value.key.length;
			if (op.op?.$case === "taskCreate") bytes += op.op.value.payload.length;
			if (op.op?.$case === "vectorUpsert")
				bytes += (op.op.value.point?.vector.length ?? 0) * 4 + (op.op.value.point?.payload.length ?? 0);
		}
	}
	return { item, bytes };
}

/** The code of an error: its own, else the name of its class. */
export function codeOf(e: unknown): string {
	if (typeof e === "object" && e !== null && "code" in e && (typeof e.code === "string" || typeof e.code === "number"))
		return cut(String(e.code), 64);
	if (e instanceof Error) return cut(e.name !== "Error" ? e.name : e.constructor.name, 64);
	return "error";
}

function taskError(e: unknown): { code: string; message: string; stack: string } {
	const cause = (e instanceof Fatal || e instanceof RetryIn) && e.cause !== undefined ? e.cause : e;
	return {
		code: codeOf(cause),
		message: cut(messageOf(cause), 4096),
		stack: cut(cause instanceof Error ? (cause.stack ?? "") : "", 16 << 10),
	};
}

/** The settle of an attempt whose handler threw. */
export function threw(t: Task, e: unknown): { item: SettleItem; bytes: number } {
	const item = (outcome: SettleItem["outcome"]) => ({ item: { ...base(t), outcome } as SettleItem, bytes: 600 });
	const cancelled = t.ending instanceof Cancelled;
	if (cancelled && (e instanceof Snooze || e instanceof Release || isAbort(e, t)))
		return item({ $case: "stop", value: { error: undefined } });
	if (t.ending instanceof Stopped && isAbort(e, t)) return item({ $case: "release", value: {} });
	if (e instanceof Snooze)
		return item({ $case: "snooze", value: { until: undefined, delay: toDuration(millis(e.delay)) } });
	if (e instanceof Release) return item({ $case: "release", value: {} });
	const error = taskError(e);
	if (cancelled) return item({ $case: "stop", value: { error } });
	const retryAfter = e instanceof RetryIn ? toDuration(millis(e.delay)) : undefined;
	return item({ $case: "fail", value: { error, fatal: e instanceof Fatal, retryAfter } });
}

/** Whether an error says nothing but that the handler's signal was aborted. */
function isAbort(e: unknown, t: Task): boolean {
	if (e === t.ending) return true;
	if (e instanceof MillraceError && e.code === "DEADLINE_EXCEEDED" && t.ending) return true;
	return e instanceof Error && e.name === "AbortError";
}
