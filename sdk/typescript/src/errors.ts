import type { Error as WireError } from "./gen/millrace/v1/task.js";
import { fromDuration } from "./time.js";

/** The closed set of codes. */
export type Code =
	| "INVALID_ARGUMENT"
	| "TOO_LARGE"
	| "UNAUTHENTICATED"
	| "PERMISSION_DENIED"
	| "NOT_FOUND"
	| "ALREADY_EXISTS"
	| "LEASE_LOST"
	| "WRONG_STATE"
	| "PRECONDITION_FAILED"
	| "WRONG_PARTITION"
	| "RATE_LIMITED"
	| "RESOURCE_EXHAUSTED"
	| "NOT_LEADER"
	| "UNAVAILABLE"
	| "DEADLINE_EXCEEDED"
	| "INTERNAL"
	| "DATA_LOSS";

/** How a call ended: nothing was changed, or it may have been applied and a repeat under the same id is safe. */
export type Outcome = "refused" | "unknown";

/** What a MillraceError is made of. */
export interface Fault {
	code: Code;
	reason?: string;
	message?: string;
	/** Path of the bad field, such as tasks[3].unique.ttl. */
	field?: string;
	/** Name of the limit that was exceeded, and its value. */
	limit?: string;
	max?: number;
	/** Index of the refused op; -1 the fence, -2-i condition i. */
	op?: number;
	/** What was found instead, such as rev and value. */
	details?: Record<string, string>;
	/** Milliseconds that the server asks to wait. */
	retryAfter?: number;
	/** host:port of the node that serves, of NOT_LEADER. */
	leader?: string;
	outcome: Outcome;
	cause?: unknown;
	/** Something answered that does not speak gRPC. */
	foreign?: boolean;
	/** A server ended a call of gRPC with it. */
	told?: boolean;
}

/** Marks errors of this package, also those of another copy of it in the same process. */
const brand = Symbol.for("millrace-sdk.error");

function isBranded(value: unknown, name: string): boolean {
	return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[brand] === name;
}

/** The one shape of an error, of a server or of this client. */
export class MillraceError extends Error {
	readonly code: Code;
	readonly reason: string | undefined;
	readonly field: string | undefined;
	readonly limit: string | undefined;
	readonly max: number | undefined;
	readonly op: number | undefined;
	readonly details: Record<string, string>;
	readonly retryAfter: number | undefined;
	readonly leader: string | undefined;
	readonly outcome: Outcome;

	constructor(fault: Fault) {
		super(textOf(fault), fault.cause === undefined ? undefined : { cause: fault.cause });
		this.name = "MillraceError";
		this.code = fault.code;
		this.reason = fault.reason || undefined;
		this.field = fault.field || undefined;
		this.limit = fault.limit || undefined;
		this.max = fault.max;
		this.op = fault.op;
		this.details = fault.details ?? {};
		this.retryAfter = fault.retryAfter;
		this.leader = fault.leader || undefined;
		this.outcome = fault.outcome;
		Object.defineProperty(this, brand, { value: "error" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "error");
	}
}

function textOf(f: Fault): string {
	let text: string = f.code;
	if (f.reason) text += ` (${f.reason})`;
	if (f.op !== undefined)
		text += ` at ${f.op === -1 ? "the fence" : f.op < 0 ? `conditions[${-2 - f.op}]` : `ops[${f.op}]`}`;
	if (f.field && !f.message?.startsWith(f.field)) text += ` in ${f.field}`;
	if (f.message) text += `: ${f.message}`;
	if (f.limit) text += ` (limit ${f.limit} = ${f.max})`;
	if (f.outcome === "unknown") text += "; the outcome is unknown";
	return text;
}

/** Reads an error of the contract. */
export function faultOf(e: WireError): Fault {
	const f: Fault = { code: e.code as Code, outcome: e.outcome === 1 ? "unknown" : "refused" };
	if (e.reason) f.reason = e.reason;
	if (e.message) f.message = e.message;
	if (e.field) f.field = e.field;
	if (e.limit) {
		f.limit = e.limit;
		f.max = Number(e.max);
	}
	if (e.op !== undefined) f.op = e.op;
	if (Object.keys(e.details).length > 0) f.details = { ...e.details };
	if (e.retryAfter) f.retryAfter = fromDuration(e.retryAfter);
	if (e.leader) f.leader = e.leader;
	return f;
}

/** The part of an error that decides where, and for how long, its call is repeated. */
export function faultIn(e: MillraceError): Fault {
	const f: Fault = { code: e.code, outcome: e.outcome };
	if (e.reason) f.reason = e.reason;
	if (e.leader) f.leader = e.leader;
	if (e.retryAfter !== undefined) f.retryAfter = e.retryAfter;
	return f;
}

/**
 * Tells how a call ended from what it threw: "ok" for undefined, "refused" where nothing was changed, "unknown" where it may have been
 * applied.
 */
export function outcomeOf(error: unknown): Outcome | "ok" {
	if (error === undefined || error === null) return "ok";
	if (error instanceof MillraceError) return error.outcome;
	return "unknown";
}

/** A task that was waited for did not complete. */
export class TaskError extends Error {
	/** dead or cancelled */
	readonly state: string;
	/** Why, such as fatal or max_attempts. */
	readonly reason: string;
	/** Code of the last failure. */
	readonly code: string;
	readonly id: string;

	constructor(id: string, state: string, reason: string, code: string, message: string) {
		super(message || `the task is ${state}`);
		this.name = "TaskError";
		this.id = id;
		this.state = state;
		this.reason = reason;
		this.code = code;
		Object.defineProperty(this, brand, { value: "task" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "task");
	}
}

/** Some tasks of an addMany were not added. */
export class BatchError extends Error {
	/** One entry per argument; undefined where the task was added. */
	readonly errors: readonly (MillraceError | undefined)[];

	constructor(errors: readonly (MillraceError | undefined)[]) {
		const failed = errors.filter((e) => e !== undefined);
		super(`${failed.length} of ${errors.length} tasks were not added; the first one: ${failed[0]?.message}`);
		this.name = "BatchError";
		this.errors = errors;
		Object.defineProperty(this, brand, { value: "batch" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "batch");
	}
}

/** What a handler throws to end its attempt in another way than by a failure that is tried again. */
export class Fatal extends Error {
	/** The task is dead: no attempt follows. */
	constructor(cause: unknown) {
		super(messageOf(cause), { cause });
		this.name = "Fatal";
		Object.defineProperty(this, brand, { value: "fatal" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "fatal");
	}
}

/** Thrown by a handler: the attempt has failed, and the next one comes after this time. */
export class RetryIn extends Error {
	readonly delay: Span;

	constructor(delay: Span, cause: unknown) {
		super(messageOf(cause), { cause });
		this.name = "RetryIn";
		this.delay = delay;
		Object.defineProperty(this, brand, { value: "retry" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "retry");
	}
}

/** Thrown by a handler: the task is given back for this time, which counts as no failure. */
export class Snooze extends Error {
	readonly delay: Span;

	constructor(delay: Span) {
		super("snoozed");
		this.name = "Snooze";
		this.delay = delay;
		Object.defineProperty(this, brand, { value: "snooze" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "snooze");
	}
}

/** Thrown by a handler: the task is given back, which counts as no failure. */
export class Release extends Error {
	constructor() {
		super("released");
		this.name = "Release";
		Object.defineProperty(this, brand, { value: "release" });
	}

	static override [Symbol.hasInstance](value: unknown): boolean {
		return isBranded(value, "release");
	}
}

export function messageOf(value: unknown): string {
	return value instanceof Error ? value.message : String(value);
}

/** A length of time: milliseconds, or a text such as "250ms", "5s", "2m", "1h", "7d". */
export type Span = number | string;

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of a span. */
export function millis(span: Span): number {
	if (typeof span === "number") return span;
	const m = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(span);
	if (!m) throw invalid("span", `${JSON.stringify(span)} must be milliseconds, or a number with ms, s, m, h or d`);
	return Number(m[1]) * units[m[2]!]!;
}

/** A refusal that this client makes itself. */
export function invalid(field: string, message: string): MillraceError {
	return new MillraceError({ code: "INVALID_ARGUMENT", field, message: `${field}: ${message}`, outcome: "refused" });
}
