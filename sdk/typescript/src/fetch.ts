/**
 * A client over REST by fetch, for edge and serverless runtimes: it adds tasks, commits, waits, and reads keys. It uses nothing of Node.
 */
export * from "./webhook.js";

/** An error of the REST interface. */
export class RestError extends Error {
	readonly code: string;
	readonly status: number;
	readonly reason: string | undefined;
	readonly field: string | undefined;
	/** refused: nothing was changed. unknown: it may have been applied, and a repeat under the same id is safe. */
	readonly outcome: "refused" | "unknown";

	constructor(
		status: number,
		body: { code?: string; message?: string; reason?: string; field?: string; outcome?: string },
	) {
		super(body.message ?? `status ${status}`);
		this.name = "RestError";
		this.status = status;
		this.code = body.code ?? "UNAVAILABLE";
		this.reason = body.reason;
		this.field = body.field;
		this.outcome = body.outcome === "refused" ? "refused" : "unknown";
	}
}

/** A task that was waited for did not complete. */
export class TaskFailed extends Error {
	constructor(
		readonly id: string,
		readonly state: string,
		readonly reason: string,
		readonly code: string,
		message: string,
	) {
		super(message || `the task is ${state}`);
		this.name = "TaskFailed";
	}
}

export interface ProducerOptions {
	/** Such as https://millrace.example.com */
	url: string;
	token?: string;
	namespace?: string;
	/** Milliseconds that a call may take, with its repeats. Default: 30,000. */
	timeout?: number;
	fetch?: typeof fetch;
}

export interface AddOptions {
	id?: string;
	kind?: string;
	tag?: string;
	key?: string;
	cost?: number;
	limiters?: readonly string[];
	/** Id of the batch that it is added to. */
	batch?: string;
	/** Milliseconds. */
	delay?: number;
	priority?: number;
	unique?: string;
	headers?: Record<string, string>;
	labels?: Record<string, string>;
}

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** Makes a task id. */
export function newId(): string {
	let value = BigInt(Date.now()) << 80n;
	const r = crypto.getRandomValues(new Uint8Array(9));
	let random = BigInt(r[0]! & 15);
	for (let i = 1; i < 9; i++) random = (random << 8n) | BigInt(r[i]!);
	value |= random;
	let out = "";
	for (let i = 0; i < 26; i++) {
		out = digits[Number(value & 31n)] + out;
		value >>= 5n;
	}
	return out;
}

const repeated = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "NOT_LEADER", "RATE_LIMITED", "RESOURCE_EXHAUSTED"]);

/** Adds tasks, commits, waits and reads keys over REST. Calls whose answer is lost are sent again under the same id. */
export class Producer {
	readonly #o: ProducerOptions;
	readonly #fetch: typeof fetch;

	constructor(o: ProducerOptions) {
		this.#o = { ...o, url: o.url.replace(/\/$/, "") };
		this.#fetch = o.fetch ?? ((...a) => fetch(...a));
	}

	#url(path: string): string {
		const space = this.#o.namespace;
		return this.#o.url + path + (space ? `${path.includes("?") ? "&" : "?"}ns=${encodeURIComponent(space)}` : "");
	}

	async #call(
		method: string,
		path: string,
		body: unknown,
		more: { key?: string; timeout?: number; accept?: number[] } = {},
	): Promise<Response> {
		const headers: Record<string, string> = {};
		if (this.#o.token) headers.authorization = `Bearer ${this.#o.token}`;
		if (body !== undefined) headers["content-type"] = "application/json";
		if (more.key) headers["idempotency-key"] = more.key;
		const late = Date.now() + (more.timeout ?? this.#o.timeout ?? 30_000);
		for (let tries = 0; ; tries++) {
			let error: RestError;
			try {
				const r = await this.#fetch(this.#url(path), {
					method,
					headers,
					signal: AbortSignal.timeout(Math.max(late - Date.now(), 1)),
					...(body === undefined ? {} : { body: JSON.stringify(body) }),
				});
				if (r.ok || more.accept?.includes(r.status)) return r;
				const told = (await r.json().catch(() => ({}))) as { error?: Record<string, string> } & Record<string, string>;
				error = new RestError(r.status, told.error ?? told);
				if (!repeated.has(error.code)) throw error;
			} catch (e) {
				if (e instanceof RestError && !repeated.has(e.code)) throw e;
				error =
					e instanceof RestError
						? e
						: new RestError(0, { code: "UNAVAILABLE", message: e instanceof Error ? e.message : String(e) });
			}
			const wait = Math.random() * Math.min(50 * 2 ** tries, 5000);
			if (Date.now() + wait >= late) throw error;
			await new Promise((resolve) => setTimeout(resolve, wait));
		}
	}

	/** Adds a task to a queue. Its payload is JSON. */
	async add(queue: string, payload: unknown, o: AddOptions = {}): Promise<{ id: string; replayed: boolean }> {
		const task: Record<string, unknown> = { id: o.id ?? newId(), queue, payload };
		if (o.kind) task.kind = o.kind;
		if (o.tag) task.tag = o.tag;
		if (o.key) task.key = o.key;
		if (o.cost) task.cost = o.cost;
		if (o.limiters) task.limiters = o.limiters;
		if (o.batch) task.batch = o.batch;
		if (o.delay !== undefined) task.delay = `${o.delay / 1000}s`;
		if (o.priority) task.priority = o.priority;
		if (o.unique) task.unique = { key: o.unique };
		if (o.headers) task.headers = Object.entries(o.headers).map(([name, value]) => ({ name, value }));
		if (o.labels) task.labels = o.labels;
		const r = (await (await this.#call("POST", "/v1/tasks", task)).json()) as { id: string; replayed?: boolean };
		return { id: r.id ?? (task.id as string), replayed: r.replayed ?? false };
	}

	/** Applies ops, in the form of the REST interface, in one entry of the log: all or none. */
	async commit(
		ops: readonly Record<string, unknown>[],
		conditions: readonly Record<string, unknown>[] = [],
	): Promise<unknown> {
		const key = crypto.randomUUID();
		return (
			await this.#call("POST", "/v1/commit", { ops, ...(conditions.length > 0 ? { conditions } : {}) }, { key })
		).json();
	}

	/** Waits for the end of a task, for at most timeout milliseconds (default: a minute), and returns its result, read as JSON. */
	async wait<T = unknown>(id: string, o: { timeout?: number } = {}): Promise<T> {
		const late = Date.now() + (o.timeout ?? 60_000);
		for (;;) {
			const left = late - Date.now();
			if (left <= 0)
				throw new RestError(504, { code: "DEADLINE_EXCEEDED", message: "the task has not ended", outcome: "refused" });
			const span = Math.min(left, 30_000);
			const r = await this.#call("GET", `/v1/tasks/${id}/result?wait=${Math.ceil(span) / 1000}s`, undefined, {
				timeout: span + 5000,
			});
			if (r.status === 202 || r.status === 204) continue;
			const t = (await r.json()) as {
				state: string;
				reason?: string;
				result?: T;
				error?: { code?: string; message?: string };
			};
			if (t.state === "completed") return t.result as T;
			if (t.state === "dead" || t.state === "cancelled") {
				throw new TaskFailed(id, t.state, t.reason ?? "", t.error?.code ?? "", t.error?.message ?? "");
			}
		}
	}

	/** Reads a key as bytes, and who wrote it last where the keyspace keeps that; undefined where it is absent. */
	async get(
		keyspace: string,
		key: string,
	): Promise<{ bytes: Uint8Array; rev: string; writer?: { task: string; token: string } } | undefined> {
		const r = await this.#call(
			"GET",
			`/v1/kv/${encodeURIComponent(keyspace)}/keys/${encodeURIComponent(key)}`,
			undefined,
			{ accept: [404] },
		);
		if (r.status === 404) return undefined;
		const [task, token] = (r.headers.get("millrace-writer") ?? "").split(" ");
		return {
			bytes: new Uint8Array(await r.arrayBuffer()),
			rev: r.headers.get("millrace-rev") ?? "",
			...(task && token && { writer: { task, token } }),
		};
	}
}
