// Limiters: bounds that tasks of several queues share.
import type { Client } from "./client.js";
import { type LimiterConfig, ListLimitersRequest, type Limiter as WireLimiter } from "./gen/millrace/v1/limiter.js";
import type { CallOptions } from "./job.js";
import { methods } from "./methods.js";
import { type Rate, rateOf, whole, wireRate } from "./queue.js";
import { fromTimestamp } from "./time.js";

/** What a limiter bounds. What is left out bounds nothing. */
export interface LimiterSettings {
	/** What its running tasks may cost together, in each partition. A task that costs more runs alone. */
	concurrency?: number;
	/** Of what begins, in units of cost, in each partition. */
	rate?: Rate;
}

/** A limiter, and what is used of it in all partitions. */
export interface LimiterInfo {
	name: string;
	/** Undefined: no bound, as the rate. */
	concurrency: number | undefined;
	/** Its time is milliseconds. */
	rate: Rate<number> | undefined;
	/** Rises with each change. */
	version: bigint;
	/** What the running tasks cost together that hold it. */
	used: number;
	/** Tasks that have not ended and name it themselves, those that run included. */
	tasks: number;
	/** When its rate lets a task of cost 1 begin; undefined: now. */
	until: Date | undefined;
	/** The first 10 running tasks that hold it; only where one limiter is read. */
	heldBy: { task: string; queue: string }[];
	/** The first 10 queues whose settings name it; only where one limiter is read. */
	queues: string[];
}

const pageSize = 1000;

function infoOf(l: WireLimiter): LimiterInfo {
	return {
		name: l.name,
		concurrency: Number(l.config?.concurrency ?? 0n) || undefined,
		rate: l.config?.rate && rateOf(l.config.rate),
		version: l.version,
		used: Number(l.used),
		tasks: Number(l.tasks),
		until: fromTimestamp(l.until),
		heldBy: l.heldBy.map(({ task, queue }) => ({ task, queue })),
		queues: l.queues,
	};
}

/** Lists limiters, page by page. */
export async function* limiters(client: Client, o: { prefix?: string } & CallOptions): AsyncGenerator<LimiterInfo> {
	let cursor = "";
	do {
		const request = ListLimitersRequest.fromPartial({ limit: pageSize, cursor, prefix: o.prefix ?? "" });
		const page = await client.engine.call(methods.listLimiters, request, o);
		for (const l of page.limiters) yield infoOf(l);
		cursor = page.cursor;
	} while (cursor);
}

/** A limiter, by its name. It bounds the tasks that name it, of any queues, and all tasks of queues that name it. */
export class Limiter {
	readonly name: string;
	readonly #client: Client;

	/** @internal */
	constructor(client: Client, name: string) {
		this.#client = client;
		this.name = name;
	}

	/**
	 * Makes it, or replaces what it bounds; this needs the scope admin. Running tasks go on when a limit falls below what runs. ifVersion is the
	 * version that it must have; 0: it must not be there yet.
	 */
	async set(s: LimiterSettings, o: { ifVersion?: bigint | number } & CallOptions = {}): Promise<LimiterInfo> {
		const config: LimiterConfig = {
			concurrency: BigInt(whole("concurrency", s.concurrency ?? 0)),
			rate: wireRate(s.rate),
		};
		const ifVersion = o.ifVersion === undefined ? undefined : BigInt(o.ifVersion);
		return infoOf(
			(await this.#client.engine.call(methods.setLimiter, { name: this.name, config, ifVersion }, o)).limiter!,
		);
	}

	/** Reads it, with the tasks that hold it. One that is not there is NOT_FOUND. */
	async get(o: CallOptions = {}): Promise<LimiterInfo> {
		return infoOf((await this.#client.engine.call(methods.getLimiter, { name: this.name, stale: false }, o)).limiter!);
	}

	/** Removes it. While a queue names it, or a task that has not ended, it is refused with WRONG_STATE. */
	async delete(o: { ifVersion?: bigint | number } & CallOptions = {}): Promise<void> {
		const ifVersion = o.ifVersion === undefined ? undefined : BigInt(o.ifVersion);
		await this.#client.engine.call(methods.deleteLimiter, { name: this.name, ifVersion }, o);
	}
}
