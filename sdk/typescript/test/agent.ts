// The agent of this SDK for the scenario suite: sdk/scenarios/README.md has its protocol.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import {
	BatchError,
	Cancelled,
	Client,
	type Codec,
	Fatal,
	job,
	LeaseLost,
	MillraceError,
	newId,
	outcomeOf,
	Release,
	RetryIn,
	Snooze,
	Stopped,
	type Task,
	TaskError,
	Worker,
} from "../src/index.js";
import { administer } from "./admin.js";
import { bench } from "./bench.js";
import { apply, exact, type Fields, jobOf, optionsOf, Unsupported } from "./effects.js";
import { plant } from "./mutants.js";

const { values } = parseArgs({ options: { mutant: { type: "string" } } });
if (values.mutant) plant(values.mutant);

const say = (fields: Fields): void => {
	process.stdout.write(`${JSON.stringify(fields)}\n`);
};

let client: Client | undefined;
let worker: Worker | undefined;
let worked: Promise<void> | undefined;
const gates = new Map<string, { promise: Promise<void>; open: () => void }>();

function gate(name: string): { promise: Promise<void>; open: () => void } {
	let g = gates.get(name);
	if (!g) {
		let open = (): void => {};
		const promise = new Promise<void>((resolve) => {
			open = resolve;
		});
		g = { promise, open };
		gates.set(name, g);
	}
	return g;
}

const fromText = (codec: string, text: string): string | Buffer =>
	codec === "bytes" ? Buffer.from(text, "base64") : text;
const toText = (codec: string, v: unknown): string => {
	if (codec === "bytes") return Buffer.from((v ?? Buffer.alloc(0)) as Buffer).toString("base64");
	return v === undefined ? "" : String(v);
};

async function add(s: Fields): Promise<Fields> {
	const codec = (s.codec as string) ?? "json";
	const h = await jobOf(s).add(client!, fromText(codec, s.args as string), optionsOf(s));
	return { id: h.id, replayed: h.replayed, replaced: h.replaced };
}

async function commit(s: Fields, t?: Task): Promise<Fields> {
	const tx = t ? t.tx() : client!.tx();
	for (const c of (s.checks as Fields[]) ?? []) {
		const is = ({ equal: "equal", not_equal: "notEqual", less: "less", greater: "greater" } as const)[
			c.compare as "equal"
		];
		const kv = tx.kv(c.keyspace as string);
		if (c.compare === "exists") kv.check(c.key as string, { exists: true });
		else if (c.compare === "absent") kv.check(c.key as string, { absent: true });
		else if (c.rev !== undefined) kv.check(c.key as string, { rev: BigInt(c.rev as string), is });
		else kv.check(c.key as string, { value: c.value as string, is });
	}
	for (const o of (s.ops as Fields[]) ?? []) await apply(o, tx);
	const r = await tx.commit(s.timeout_ms === undefined ? {} : { timeout: s.timeout_ms as number });
	return {
		revs: r.revs.map((v) => (v === undefined ? "" : String(v))),
		sums: r.sums.map((v) => (v === undefined ? "" : String(v))),
		replayed: r.replayed,
	};
}

function showError(e: unknown): Fields {
	if (e instanceof Unsupported) return { code: "UNSUPPORTED", outcome: "refused" };
	if (e instanceof TaskError) {
		return {
			code: "TASK_FAILED",
			outcome: "ok",
			state: e.state,
			reason: e.reason,
			task_code: e.code,
			message: e.message,
		};
	}
	if (e instanceof MillraceError) {
		const out: Fields = { code: e.code, message: e.message, outcome: e.outcome };
		if (e.reason) out.reason = e.reason;
		if (e.field) out.field = e.field;
		if (e.limit) out.limit = e.limit;
		if (e.op !== undefined) out.op = e.op;
		if (Object.keys(e.details).length > 0) out.details = e.details;
		return out;
	}
	return { code: "UNKNOWN", message: String(e), outcome: outcomeOf(e) };
}

const sleep = (ms: number, signal: AbortSignal): Promise<void> =>
	new Promise((resolve, reject) => {
		const timer = setTimeout(resolve, ms);
		signal.addEventListener("abort", () => {
			clearTimeout(timer);
			reject(signal.reason);
		});
	});

const aborted = (signal: AbortSignal): Promise<never> =>
	new Promise((_, reject) => {
		if (signal.aborted) reject(signal.reason);
		signal.addEventListener("abort", () => reject(signal.reason));
	});

async function step(s: Fields, t: Task, args: unknown, codec: string): Promise<{ done: unknown } | undefined> {
	if (s.fx) for (const o of s.fx as Fields[]) await apply(o, t.fx);
	else if (s.on_refused) {
		t.onRefused(() => {
			t.fx.reset();
			for (const o of s.on_refused as Fields[]) apply(o, t.fx);
		});
	} else if (s.gate) {
		say({ event: "gate", id: t.id, name: s.gate });
		await Promise.race([gate(s.gate as string).promise, aborted(t.signal)]);
	} else if (s.sleep_ms !== undefined) await sleep(s.sleep_ms as number, t.signal);
	else if (s.block_ms !== undefined) {
		const late = Date.now() + (s.block_ms as number);
		while (Date.now() < late);
	} else if (s.return !== undefined) return { done: s.return === "$args" ? args : fromText(codec, s.return as string) };
	else if (s.add) await add(s.add as Fields);
	else if (s.commit) await commit(s.commit as Fields, t);
	else end(s);
	return undefined;
}

function end(s: Fields): never {
	if (s.fail !== undefined)
		throw s.code ? Object.assign(new Error(s.fail as string), { code: s.code }) : new Error(s.fail as string);
	if (s.fatal !== undefined) throw new Fatal(new Error(s.fatal as string));
	if (s.retry_in_ms !== undefined) throw new RetryIn(s.retry_in_ms as number, new Error((s.message as string) ?? ""));
	if (s.snooze_ms !== undefined) throw new Snooze(s.snooze_ms as number);
	if (s.release) throw new Release();
	if (s.exit !== undefined) process.exit(s.exit as number);
	if (s.panic === "stack") {
		const deep = (n: number): number => deep(n + 1) + 1;
		deep(0);
	}
	if (s.panic === "reject") {
		void Promise.reject(new Error("nothing handles this"));
		throw new Error("nothing handles this");
	}
	if (s.panic === "exit") throw "exit";
	throw new Unsupported();
}

function handlerOf(spec: Fields) {
	const codec = (spec.codec as string) ?? "json";
	const raw = (spec.handler as unknown[]) ?? [];
	const scripts = (Array.isArray(raw[0]) ? raw : [raw]) as Fields[][];
	return async (t: Task, args: unknown): Promise<unknown> => {
		say({ event: "begin", id: t.id, job: t.kind, attempt: t.attempt, args: toText(codec, args) });
		void t.stopping.then(() => say({ event: "stopping", id: t.id }));
		let why = "returned";
		const { signal } = t;
		const ended = (): void => {
			const r = signal.reason;
			if (r instanceof LeaseLost) why = "lost";
			else if (r instanceof Cancelled) why = "cancelled";
			else if (r instanceof Stopped) why = "stopped";
		};
		if (signal.aborted) ended();
		signal.addEventListener("abort", ended);
		try {
			for (const s of scripts[Math.min(t.attempt, scripts.length) - 1]!) {
				const r = await step(s, t, args, codec);
				if (r) return r.done;
			}
			return codec === "json" ? "null" : codec === "text" ? "" : Buffer.alloc(0);
		} catch (e) {
			if (why === "returned") why = "raised";
			throw e;
		} finally {
			say({ event: "end", id: t.id, attempt: t.attempt, why });
		}
	};
}

function work(s: Fields): void {
	const bindings = (s.jobs as Fields[]).map((spec) => jobOf(spec).handle(handlerOf(spec)));
	const o: Fields = {
		onSettled: (x: { task: Task; op: string; replayed: boolean; error?: MillraceError }) => {
			say({
				event: "settled",
				id: x.task.id,
				attempt: x.task.attempt,
				op: x.op,
				replayed: x.replayed,
				...(x.error ? { err: showError(x.error) } : {}),
			});
		},
	};
	if (s.slots !== undefined) o.slots = s.slots;
	if (s.queues !== undefined) o.queues = s.queues;
	if (s.weights !== undefined) o.weights = s.weights;
	if (s.in_order !== undefined) o.inOrder = s.in_order;
	if (s.drain_ms !== undefined) o.drain = s.drain_ms;
	if (s.stall_ms !== undefined) o.stall = s.stall_ms;
	if (s.lease_ms !== undefined) o.lease = s.lease_ms;
	worker = new Worker(client!, bindings, o);
	worked = worker.run().then(
		() => say({ event: "exit" }),
		(e) => say({ event: "exit", err: showError(e) }),
	);
	void worked.then(async () => {
		if (terminated) await close();
	});
}

let terminated = false;

async function close(): Promise<never> {
	await client?.close();
	process.exit(0);
}

process.on("SIGTERM", () => {
	terminated = true;
	if (!worker) void close();
});

async function carryOut(s: Fields): Promise<unknown> {
	switch (s.do) {
		case "open": {
			client = new Client({
				url: (s.address as string) ?? (s.addresses as string[]).join(","),
				token: s.token as string,
				namespace: s.namespace as string,
				...(s.timeout_ms === undefined ? {} : { timeout: s.timeout_ms as number }),
				...(s.transport === undefined ? {} : { transport: s.transport as "auto" | "stream" | "rest" }),
				...(s.ledger ? { ledger: (line: string) => appendFileSync(s.ledger as string, line) } : {}),
				logger: { warn: (text) => say({ event: "log", text }), error: (text) => say({ event: "log", text }) },
			});
			return {};
		}
		case "add":
			return add(s);
		case "add_many":
		case "add_all": {
			const j = jobOf(s);
			const args = s.args as string[];
			if (s.do === "add_all") return { ids: (await j.addAll(client!, args, optionsOf(s))).map((h) => h.id) };
			try {
				const handles = await j.addMany(client!, args, optionsOf(s));
				return { ids: handles.map((h) => h.id), errors: handles.map(() => null) };
			} catch (e) {
				if (!(e instanceof BatchError)) throw e;
				return { ids: args.map(() => null), errors: e.errors.map((x) => (x ? showError(x) : null)) };
			}
		}
		case "wait": {
			const codec = (s.codec as string) ?? "json";
			const h = job<unknown, unknown>("any", codec === "json" ? { codec: exact as Codec<unknown> } : {}).of(
				client!,
				s.id as string,
			);
			const result = await h.wait(s.timeout_ms === undefined ? {} : { timeout: s.timeout_ms as number });
			return { result: toText(codec, result) };
		}
		case "get": {
			const t = await client!.task(s.id as string);
			return { ...t, task_code: t.errorCode, message: t.errorMessage };
		}
		case "commit":
			return commit(s);
		case "kv_get": {
			const v = await client!.kv(s.keyspace as string).get(s.key as string);
			if (!v) return null;
			const writer = v.writer ? { task: v.writer.task, token: String(v.writer.token) } : null;
			return { value_base64: v.bytes.toString("base64"), rev: String(v.rev), writer };
		}
		case "cancel":
			await client!.cancel(s.id as string, {
				reason: (s.reason as string) ?? "",
				force: (s.force as boolean) ?? false,
			});
			return {};
		case "set_token":
			client!.setToken(s.token as string);
			return {};
		case "worker":
			work(s);
			return {};
		case "gate":
			gate(s.name as string).open();
			return {};
		case "stop":
			await worker?.stop();
			await worked;
			return {};
		case "bench":
			return bench(client!, s);
		case "close":
			return {};
		case "new_id":
			return { id: newId() };
	}
	return administer(client!, s);
}

const lines = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
lines.on("line", (line) => {
	const s = JSON.parse(line) as Fields;
	carryOut(s).then(
		(ok) => {
			say({ i: s.i, ok });
			if (s.do === "close") void close();
		},
		(e) => say({ i: s.i, err: showError(e) }),
	);
});
lines.on("close", () => void close());
