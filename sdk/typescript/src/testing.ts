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
import { type MillraceError, TaskError } from "./errors.js";
import {
	Assignment,
	type CommitRequest,
	type CommitResponse,
	type SettleItem,
	type TaskSpec,
	type Task as WireTask,
} from "./gen/millrace/v1/task.js";
import { completed, invoke, threw } from "./handler.js";
import type { Binding, Job } from "./job.js";
import { Store } from "./record.js";
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
	/** Why a Recorder refused the effects, where the attempt failed of it. */
	refused: MillraceError | undefined;
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

interface Settled {
	run: TestRun;
	item: SettleItem;
}

/** The attempt that a test describes. */
function assigned(spec: TaskSpec, o: RunOptions): Assignment {
	const number = o.attempt ?? 1;
	return Assignment.fromPartial({
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
	});
}

/** Runs a handler: its settle, or that of what it threw. */
async function settleOf(b: Binding, t: Task): Promise<SettleItem> {
	try {
		t.result = (await invoke(b, t)).result;
		return completed(b, t, t.result).item;
	} catch (e) {
		return threw(t, e).item;
	}
}

/** What an attempt came to, by its settle. */
function runOf(t: Task, item: SettleItem): TestRun {
	const run: TestRun = {
		id: t.id,
		settle: item.outcome?.$case ?? "",
		result: undefined,
		error: undefined,
		fatal: false,
		delay: undefined,
		effects: [],
		checks: 0,
		refused: undefined,
		checkpoint: t.saved,
	};
	switch (item.outcome?.$case) {
		case "complete":
			run.result = t.result;
			run.effects = (item.effects?.ops ?? []).map(effectOf);
			run.checks = item.effects?.conditions.length ?? 0;
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
	return run;
}

/** Runs a handler once, as a worker would: arguments and result go through the schema and the codec of its job. Nothing is dialled. */
export async function runHandler(b: Binding, args: unknown, o: RunOptions = {}): Promise<TestRun> {
	const spec = await b.job.spec(args, {
		...(o.id ? { id: o.id } : {}),
		...(o.tag ? { tag: o.tag } : {}),
		...(o.headers ? { headers: o.headers } : {}),
	});
	const t = new Task(undefined, assigned(spec, o));
	return runOf(t, await settleOf(b, t));
}

class RecordingEngine extends Engine {
	readonly store = new Store();

	override async create(spec: TaskSpec): Promise<Created> {
		return this.store.create(spec);
	}

	override async createEach(specs: TaskSpec[]): Promise<(Created | MillraceError)[]> {
		return this.store.createEach(specs);
	}

	override async createAll(specs: TaskSpec[]): Promise<Created[]> {
		return this.store.createAll(specs);
	}

	override async commit(request: CommitRequest): Promise<CommitResponse> {
		return this.store.commit(request);
	}

	override async wait(id: string): Promise<WireTask> {
		return this.store.ended(id);
	}

	override async call<Req, Res>(method: { path: string }, request: Req): Promise<Res> {
		return this.store.call(method.path, request) as Res;
	}

	override async learn(): Promise<void> {}

	override async last<Req, Res>(method: { path: string }, request: Req): Promise<Res> {
		return this.store.call(method.path, request) as Res;
	}

	override async *read<Req, Res>(method: { path: string }, request: Req): AsyncGenerator<Res> {
		yield this.store.call(method.path, request) as Res;
	}
}

/**
 * A client that keeps what it is given, and runs handlers on it. Nothing is dialled.
 *
 * It judges tasks and keys as a server does: ids and unique keys, ifAbsent, ifRev, check, the bounds of add, the fence of Task.tx, all of a
 * transaction or nothing. It has one partition, and judges neither limits nor rights. Time does not pass in it: drain does not wait for a
 * delay, and a unique key stays taken. What else only a server does is INVALID_ARGUMENT with the reason recorder.
 */
export class Recorder extends Client {
	readonly #engine: RecordingEngine;

	constructor() {
		super({ url: "127.0.0.1:1", token: "" });
		this.#engine = new RecordingEngine(this.hub, undefined, undefined);
		Object.defineProperty(this, "engine", { value: this.#engine });
	}

	/** The arguments of the tasks of a job that were added, in order. */
	added<In, Args, Out>(j: Job<In, Args, Out>): In[] {
		return this.#engine.store.specs
			.filter((s) => s.kind === j.name)
			.map((s) => decode(s.payload, s.contentType, j.options.codec) as In);
	}

	/** What was committed, and what handlers did that drain ran. */
	get effects(): Effect[] {
		return this.#engine.store.ops.map(effectOf);
	}

	/**
	 * Runs the tasks that were added, with their follow-ups, one after the other. An attempt that fails is followed by the next one at once, up
	 * to the task's attempts; a task that is snoozed or released waits for the next drain. Effects are applied when the attempt completes; when
	 * they are refused, what the handler gave to onRefused is called, or the attempt fails.
	 */
	async drain(bindings: readonly Binding[]): Promise<TestRun[]> {
		const runs: TestRun[] = [];
		const kinds = new Map(bindings.map((b) => [b.job.name, b]));
		const passed = new Set<string>();
		for (;;) {
			const m = this.#engine.store.next((kind) => kinds.has(kind), passed);
			if (!m) return runs;
			const { run, item } = await this.#attempt(kinds.get(m.kind)!, m);
			runs.push(run);
			if (item.outcome?.$case === "snooze" || item.outcome?.$case === "release") passed.add(m.id);
		}
	}

	async #attempt(b: Binding, m: Assignment): Promise<Settled> {
		const { store } = this.#engine;
		const t = new Task(this, m);
		let item = await settleOf(b, t);
		for (;;) {
			if (t.saved !== undefined) store.save(t.id, t.token, t.saved);
			const { failed, refused } = store.settle(item);
			if (!refused) return { run: runOf(t, item), item };
			try {
				if (!t.refused || failed) throw refused;
				await t.refused(refused);
				item = completed(b, t, t.result).item;
			} catch (e) {
				item = threw(t, e).item;
				if (!failed) store.settle(item);
				const run = { ...runOf(t, item), refused };
				return { run, item };
			}
		}
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
		"--disk-reserve",
		"16777216",
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
