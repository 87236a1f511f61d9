import type { Created } from "./core/producer.js";
import { MillraceError } from "./errors.js";
import type { At, TaskSpec } from "./gen/millrace/v1/task.js";

/** One line of a ledger; its names are a contract with the checkers that read it. */
export interface Line {
	op: string;
	id?: string;
	request_id?: string;
	token?: string;
	attempt?: number;
	queue?: string;
	replayed?: boolean;
	answer?: string;
}

/** Writes down how each call ended: one line of JSON per call, for audits of what was promised. */
export class Ledger {
	readonly #write: (line: string) => void;
	readonly #start = performance.now();

	constructor(write: (line: string) => void) {
		this.#write = write;
	}

	/** Microseconds since the ledger was made. */
	now(): number {
		return Math.round((performance.now() - this.#start) * 1000);
	}

	#end(begun: number, line: Line, outcome: string, at: At | undefined, code: string | undefined): void {
		const out: Record<string, unknown> = { t_invoke: begun, t_return: this.now(), ...line, outcome };
		if (!line.replayed) delete out.replayed;
		if (at) {
			out.partition = `p${at.partition}`;
			out.index = Number(at.index);
			if (at.stamp) out.stamp = Number(at.stamp.seconds) * 1000 + Math.floor(at.stamp.nanos / 1e6);
		}
		if (code) out.code = code;
		this.#write(`${JSON.stringify(out)}\n`);
	}

	ok(begun: number, line: Line, at: At | undefined): void {
		this.#end(begun, line, "ok", at, undefined);
	}

	created(begun: number, spec: TaskSpec, r: Created): void {
		const line: Line = { op: "create", id: spec.id, queue: spec.queue, replayed: r.replayed };
		if (r.id && r.id !== spec.id) line.answer = r.id;
		this.#end(begun, line, "ok", r.at, undefined);
	}

	/** An empty id is of a task that was never placed. */
	failed(begun: number, { id, ...rest }: Line, error: unknown): void {
		const line: Line = id ? { ...rest, id } : rest;
		const e = error instanceof MillraceError ? error : undefined;
		if (e?.outcome === "refused") this.#end(begun, line, "refused", undefined, e.code);
		else this.#end(begun, line, "unknown", undefined, undefined);
	}
}
