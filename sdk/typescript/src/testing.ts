/** Helpers for tests: a handler without a server, a client that only records, and a server of one's own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "./client.js";
import { decode } from "./content.js";
import { newId } from "./core/place.js";
import type { Created } from "./core/producer.js";
import { type Effect, effectOf } from "./effects.js";
import { Engine } from "./engine.js";
import { MillraceError, TaskError } from "./errors.js";
import {
	Assignment,
	type CommitRequest,
	CommitResponse,
	type Op,
	State,
	type TaskSpec,
	Task as WireTask,
} from "./gen/millrace/v1/task.js";
import { completed, invoke, threw } from "./handler.js";
import type { Binding, Job } from "./job.js";
import { Task } from "./task.js";
import { fromDuration } from "./time.js";

export type { Effect } from "./effects.js";

/** What one attempt of a handler came to, without a server. */
export interface TestRun {
	id: string;
	/** complete, fail, stop, snooze or release */
	settle: string;
	/** Of an attempt that completed. */
	result: unknown;
	/** Of an attempt that failed. */
	error: { code: string; message: string } | undefined;
	/** With fail: no further attempt. */
	fatal: boolean;
	/** Milliseconds that RetryIn or Snooze asked for. */
	delay: number | undefined;
	/** What would have been committed with the completion, in order; none unless settle is complete. */
	effects: Effect[];
	/** Conditions that the completion asks for. */
	checks: number;
	checkpoint: Buffer | undefined;
}

/** Settings of the attempt that runHandler makes. */
export interface RunOptions {
	id?: string;
	attempt?: number;
	tag?: string;
	headers?: Record<string, string>;
	checkpoint?: Uint8Array;
}

async function attempt(
	b: Binding,
	spec: TaskSpec,
	number: number,
	o: RunOptions,
): Promise<{ run: TestRun; ops: Op[]; bytes: Buffer; type: string }> {
	const t = new Task(
		undefined,
		Assignment.fromPartial({
			id: spec.id,
			token: BigInt(number),
			attempt: number,
			queue: spec.queue,
			kind: spec.kind,
			payload: spec.payload,
			contentType: spec.contentType,
			headers: spec.headers,
			priority: spec.priority,
			maxAttempts: spec.maxAttempts || 5,
			failures: number - 1,
			createdMs: BigInt(Date.now()),
			tag: spec.tag,
			checkpoint: o.checkpoint === undefined ? Buffer.alloc(0) : Buffer.from(o.checkpoint),
		}),
	);
	let item: ReturnType<typeof threw>["item"];
	let result: unknown;
	try {
		result = (await invoke(b, t)).result;
		item = completed(b, t, result).item;
	} catch (e) {
		item = threw(t, e).item;
	}
	const run: TestRun = {
		id: t.id,
		settle: item.outcome?.$case ?? "",
		result: undefined,
		error: undefined,
		fatal: false,
		delay: undefined,
		effects: [],
		checks: 0,
		checkpoint: t.saved,
	};
	let ops: Op[] = [];
	let bytes: Buffer = Buffer.alloc(0);
	let type = "";
	switch (item.outcome?.$case) {
		case "complete":
			run.result = result;
			ops = item.effects?.ops ?? [];
			run.effects = ops.map(effectOf);
			run.checks = item.effects?.conditions.length ?? 0;
			bytes = item.outcome.value.result;
			type = item.outcome.value.resultType;
			break;
		case "fail": {
			const f = item.outcome.value;
			run.error = { code: f.error?.code ?? "", message: f.error?.message ?? "" };
			run.fatal = f.fatal;
			if (f.retryAfter) run.delay = fromDuration(f.retryAfter);
			break;
		}
		case "snooze":
			run.delay = fromDuration(item.outcome.value.delay);
	}
	return { run, ops, bytes, type };
}

/** Runs a handler once, as a worker would: arguments and result go through the schema and the codec of its job. Nothing is dialled. */
export async function runHandler(b: Binding, args: unknown, o: RunOptions = {}): Promise<TestRun> {
	const spec = await b.job.spec(args, {
		...(o.id ? { id: o.id } : {}),
		...(o.tag ? { tag: o.tag } : {}),
		...(o.headers ? { headers: o.headers } : {}),
	});
	return (await attempt(b, spec, o.attempt ?? 1, o)).run;
}

class RecordingEngine extends Engine {
	readonly specs: TaskSpec[] = [];
	readonly ops: Op[] = [];
	readonly ended = new Map<string, WireTask>();

	add(spec: TaskSpec): Created {
		spec.id ||= newId();
		const before = this.specs.find(
			(s) => s.id === spec.id || (spec.unique && s.queue === spec.queue && s.unique?.key === spec.unique.key),
		);
		if (!before) this.specs.push(spec);
		return { id: before?.id ?? spec.id, replayed: before !== undefined, payloadMatches: true, error: undefined };
	}

	apply(ops: readonly Op[]): void {
		for (const op of ops) {
			this.ops.push(op);
			if (op.op?.$case === "taskCreate") this.add(op.op.value);
		}
	}

	override async create(spec: TaskSpec): Promise<Created> {
		return this.add(spec);
	}

	override async createEach(specs: TaskSpec[]): Promise<Created[]> {
		return specs.map((s) => this.add(s));
	}

	override async createAll(specs: TaskSpec[]): Promise<Created[]> {
		return specs.map((s) => this.add(s));
	}

	override async commit(request: CommitRequest): Promise<CommitResponse> {
		this.apply(request.ops);
		return CommitResponse.fromPartial({
			results: request.ops.map((o) => (o.op?.$case === "kvAdd" ? { sum: o.op.value.delta, rev: 1n } : { rev: 1n })),
		});
	}

	override async wait(id: string): Promise<WireTask> {
		const t = this.ended.get(id);
		if (t) return t;
		throw new MillraceError({
			code: "UNAVAILABLE",
			message: `nothing has run the task ${id}: call drain before`,
			outcome: "refused",
		});
	}

	override async call<Req, Res>(method: { path: string }, _request: Req): Promise<Res> {
		throw new MillraceError({
			code: "UNAVAILABLE",
			message: `a Recorder does not have ${method.path}`,
			outcome: "refused",
		});
	}
}

/** A client that keeps what it is given, for tests of producers. Nothing is dialled. */
export class Recorder extends Client {
	readonly #engine: RecordingEngine;
	readonly #done = new Set<string>();

	constructor() {
		super({ url: "127.0.0.1:1", token: "" });
		this.#engine = new RecordingEngine(this.hub, undefined, undefined);
		Object.defineProperty(this, "engine", { value: this.#engine });
	}

	/** The arguments of the tasks of a job that were added, in order. */
	added<In, Args, Out>(j: Job<In, Args, Out>): In[] {
		return this.#engine.specs
			.filter((s) => s.kind === j.name)
			.map((s) => decode(s.payload, s.contentType, j.options.codec) as In);
	}

	/** What was committed, and what handlers did that drain ran. */
	get effects(): Effect[] {
		return this.#engine.ops.map(effectOf);
	}

	/** Runs the tasks that were added, with their follow-ups, one after the other; each is tried at most as often as it may fail. */
	async drain(bindings: readonly Binding[]): Promise<TestRun[]> {
		const runs: TestRun[] = [];
		for (let i = 0; i < this.#engine.specs.length; i++) {
			const spec = this.#engine.specs[i]!;
			const b = bindings.find((x) => x.job.name === spec.kind);
			if (!b || this.#done.has(spec.id)) continue;
			this.#done.add(spec.id);
			for (let n = 1; n <= (spec.maxAttempts || 5); n++) {
				const { run, ops, bytes, type } = await attempt(b, spec, n, {});
				runs.push(run);
				if (run.settle === "complete") {
					this.#engine.apply(ops);
					this.#engine.ended.set(
						spec.id,
						WireTask.fromPartial({
							id: spec.id,
							state: State.COMPLETED,
							hasResult: true,
							result: bytes,
							resultType: type,
						}),
					);
					break;
				}
				const last = run.fatal || n === (spec.maxAttempts || 5);
				if (last) {
					const dead = {
						id: spec.id,
						state: State.DEAD,
						reason: run.fatal ? "fatal" : "max_attempts",
						error: { ...run.error, stack: "" },
					};
					this.#engine.ended.set(spec.id, WireTask.fromPartial(dead));
					break;
				}
			}
		}
		return runs;
	}
}

/** A server that a test started. */
export interface DevServer {
	url: string;
	/** host:port of its REST routes; empty without them. */
	http: string;
	token: string;
	stop(): Promise<void>;
}

/** Starts `millrace serve --dev` with data of its own. binary: default MILLRACE_BIN, then millrace on PATH. http: with REST. */
export async function devServer(o: { binary?: string; http?: boolean } = {}): Promise<DevServer> {
	const dir = mkdtempSync(join(tmpdir(), "millrace-"));
	const token = join(dir, "token");
	const flags = [
		"--json",
		"serve",
		"--dev",
		"--data",
		join(dir, "data"),
		"--listen",
		"127.0.0.1:0",
		"--http",
		o.http ? "127.0.0.1:0" : "off",
		"--admin",
		"off",
		"--token-file",
		token,
	];
	const child: ChildProcess = spawn(o.binary ?? process.env.MILLRACE_BIN ?? "millrace", flags, {
		stdio: ["ignore", "pipe", "inherit"],
	});
	const over = new Promise<void>((resolve) => child.once("exit", () => resolve()));
	const told = await new Promise<{ grpc: string; http?: string }>((resolve, reject) => {
		child.once("error", reject);
		void over.then(() => reject(new Error("the server ended before it served")));
		createInterface({ input: child.stdout! }).on("line", (line) => {
			try {
				const first = JSON.parse(line) as { grpc?: string; http?: string };
				if (first.grpc) resolve(first as { grpc: string });
			} catch {
				// a line that is not for us
			}
		});
	});
	return {
		url: told.grpc,
		http: told.http ?? "",
		token: readFileSync(token, "utf8").trim(),
		stop: async () => {
			child.kill("SIGTERM");
			await over;
			rmSync(dir, { recursive: true, force: true });
		},
	};
}

export { newId, TaskError };
