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
