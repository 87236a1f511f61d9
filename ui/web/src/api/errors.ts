import { count, span } from "../format";
import type { components } from "./schema";

type Outcome = "refused" | "unknown";

/** ApiError is what an answer of the server, or its absence, says about a call that failed. */
export class ApiError extends Error {
	override readonly name = "ApiError";
	/** HTTP status; 0 where there was no answer. */
	readonly status: number;
	/** Closed code, such as WRONG_STATE. */
	readonly code: string;
	readonly reason: string | undefined;
	readonly field: string | undefined;
	readonly limit: string | undefined;
	readonly max: number | undefined;
	/** refused: nothing was changed. unknown: it may have been applied. */
	readonly outcome: Outcome;
	readonly retryAfterMs: number | undefined;
	readonly details: Record<string, unknown>;

	/** Someone else was faster: what was to be changed is not at the version any more for which the write holds. */
	get overtaken(): boolean {
		return this.status === 412 || this.code === "PRECONDITION_FAILED";
	}

	/** No node leads what was asked for: what this node has can be read, and nothing written. */
	get unled(): boolean {
		return this.code === "UNAVAILABLE" && this.reason === "no_leader";
	}

	/** The server has no such route: its service is closed. */
	get noRoute(): boolean {
		return this.code === "NOT_FOUND" && this.message.startsWith('route "');
	}

	constructor(status: number, e: Partial<components["schemas"]["Error"]>) {
		super(e.message ?? "the server did not say what was wrong");
		this.status = status;
		this.code = e.code ?? "UNAVAILABLE";
		this.reason = e.reason || undefined;
		this.field = e.field || undefined;
		this.limit = e.limit || undefined;
		this.max = e.max;
		this.outcome = e.outcome === "refused" ? "refused" : "unknown";
		this.retryAfterMs = e.retry_after_ms;
		this.details = (e.details ?? {}) as Record<string, unknown>;
	}
}

/** errorOf reads the body of a refusal. A body that is not Millrace's (of a proxy, say) proves nothing about a write. */
export function errorOf(status: number, body: unknown): ApiError {
	const e = (body as { error?: Partial<components["schemas"]["Error"]> } | undefined)?.error;
	if (e && typeof e === "object" && typeof e.code === "string") return new ApiError(status, e);
	return new ApiError(status, {
		code: "UNAVAILABLE",
		message: `the answer had status ${status} and no error of Millrace`,
	});
}

/** asApiError makes an ApiError of whatever a call threw. */
export function asApiError(e: unknown): ApiError {
	if (e instanceof ApiError) return e;
	const text = e instanceof Error ? e.message : String(e);
	return new ApiError(0, { code: "UNAVAILABLE", message: `there was no answer: ${text}`, outcome: "unknown" });
}

/** sentence says what a refusal means for the person who reads it; empty where the server's message says it. */
export function sentence(e: ApiError): string {
	const bound = e.limit ? `${e.limit}${e.max === undefined ? "" : ` of ${count(e.max)}`}` : "";
	switch (e.code) {
		case "PERMISSION_DENIED":
			return "Your token does not allow this.";
		case "UNAUTHENTICATED":
			return "You are not signed in any more.";
		case "RATE_LIMITED":
			return `Too many calls${e.limit ? `: the limit is ${e.limit}` : ""}. Wait ${e.retryAfterMs ? span(e.retryAfterMs) : "a moment"}.`;
		case "RESOURCE_EXHAUSTED":
			if (e.limit === "disk")
				return "The server's disk is full (limit disk): it takes no new work until there is room.";
			return bound ? `The limit ${bound} is reached.` : "A limit is reached.";
		case "TOO_LARGE":
			return bound ? `It is over the limit ${bound}.` : "It is too large.";
		case "UNAVAILABLE":
			if (e.unled) return "No node leads what this is about: most nodes that have it must be reached.";
			if (e.reason === "leader_unreached") return "The node that leads what this is about did not answer.";
			return e.status === 0
				? "The server did not answer."
				: "The server cannot answer now: no leader, or it is stopping.";
		case "DEADLINE_EXCEEDED":
			return "The server did not answer in time.";
		case "NOT_FOUND":
			return e.noRoute
				? "This server does not serve this: the service is closed (--services)."
				: "It is not there (any more).";
		default:
			return "";
	}
}
