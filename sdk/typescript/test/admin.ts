// What is administered, as the agent's protocol writes it.
import type {
	BatchInfo,
	BatchOptions,
	BulkAction,
	BulkInfo,
	BulkOptions,
	Client,
	CronInfo,
	CronOptions,
	CronRun,
	FollowUp,
	LimiterInfo,
	QueueChanges,
	QueueConfig,
	QueueKey,
	QueueSettings,
	Rate,
} from "../src/index.js";
import { type Fields, jobOf, optionsOf, some, Unsupported } from "./effects.js";

const moment = (d: Date | undefined): string => d?.toISOString().replace(".000Z", "Z") ?? "";

function showCron(c: CronInfo): Fields {
	return {
		name: c.name,
		schedule: c.schedule,
		zone: c.zone,
		words: c.words,
		jitter_ms: c.jitter,
		paused: c.paused,
		overlap: c.overlap,
		catch_up: c.catchUp,
		queue: c.queue,
		kind: c.kind,
		priority: c.priority,
		task_key: c.key,
		cost: c.cost,
		limiters: c.limiters,
		tag: c.tag,
		labels: c.labels,
		version: String(c.version),
		runs: c.runs,
		start: moment(c.start),
		end: moment(c.end),
		next_at: moment(c.nextAt),
		waiting_at: moment(c.waitingAt),
		last_run: c.lastRun ? showRun(c.lastRun) : null,
	};
}

function showRun(r: CronRun): Fields {
	return {
		number: r.number,
		slot: moment(r.slot),
		by_hand: r.byHand,
		outcome: r.outcome,
		skipped: r.skipped,
		task: r.task,
		state: r.state,
		passed: r.passed,
		task_code: r.code,
		message: r.message,
	};
}

function readRate(v: unknown): Rate | undefined {
	if (!v) return undefined;
	const r = v as Fields;
	return { limit: r.limit as number, per: r.per_ms as number, ...some(r, { burst: "burst" }) };
}

const showRate = (r: Rate<number> | undefined): Fields | null =>
	r ? { limit: r.limit, per_ms: r.per, burst: r.burst ?? 0 } : null;

/** Settings of a queue; null is the default. */
function changes(given: Fields): QueueChanges {
	const out: Fields = some(given, {
		attempts: "attempts",
		lease_ms: "lease",
		concurrency: "concurrency",
		max_workers: "maxWorkers",
		max_tasks: "maxTasks",
		order: "order",
		fairness: "fairness",
		dead_letter: "deadLetter",
		limiters: "limiters",
	});
	if (given.rate !== undefined) out.rate = readRate(given.rate) ?? null;
	if (given.per_key !== undefined) {
		const k = given.per_key as Fields | null;
		const rate = readRate(k?.rate);
		out.perKey = k && { ...some(k, { concurrency: "concurrency" }), ...(rate && { rate }) };
	}
	if (Object.keys(out).length !== Object.keys(given).length) throw new Unsupported();
	return out;
}

function showConfig(c: QueueConfig): Fields {
	return {
		version: String(c.version),
		attempts: c.attempts ?? 0,
		lease_ms: c.lease ?? 0,
		concurrency: c.concurrency ?? 0,
		max_workers: c.maxWorkers ?? 0,
		max_tasks: c.maxTasks ?? 0,
		order: c.order,
		fairness: c.fairness,
		dead_letter: c.deadLetter ?? "",
		rate: showRate(c.rate),
		per_key: { concurrency: c.perKey?.concurrency ?? 0, rate: showRate(c.perKey?.rate) },
		limiters: c.limiters ?? [],
	};
}

function showKey(k: QueueKey): Fields {
	return {
		key: k.key,
		tasks: k.tasks,
		ready: k.ready,
		running: k.running,
		weight: k.weight,
		concurrency: k.concurrency ?? 0,
		rate: showRate(k.rate),
		paused: k.paused ? { reason: k.paused.reason, until: moment(k.paused.until) } : null,
		waits_for: k.waitsFor,
	};
}

async function all<T>(list: AsyncIterable<T>, show: (v: T) => Fields): Promise<Fields[]> {
	const out: Fields[] = [];
	for await (const v of list) out.push(show(v));
	return out;
}

function cronOptions(s: Fields): CronOptions {
	const own = some(s, {
		zone: "zone",
		overlap: "overlap",
		catch_up: "catchUp",
		jitter_ms: "jitter",
		paused: "paused",
		if_version: "ifVersion",
	});
	for (const name of ["start", "end"]) if (s[name] !== undefined) own[name] = new Date(s[name] as string);
	return { ...optionsOf(s), ...own };
}

const bulkOptions = (s: Fields): BulkOptions =>
	some(s, {
		queue: "queue",
		state: "state",
		kind: "kind",
		labels: "labels",
		reason: "reason",
		force: "force",
		priority: "priority",
		to_queue: "toQueue",
		patch: "patch",
		per_second: "rate",
		batch: "batch",
	});

const showBulk = (j: BulkInfo): Fields => ({
	id: j.id,
	action: j.action,
	state: j.state,
	rate: j.rate,
	reason: j.reason,
	matched: j.matched,
	done: j.done,
	refused: j.refused,
});

const showLimiter = (l: LimiterInfo): Fields => ({
	name: l.name,
	concurrency: l.concurrency ?? 0,
	rate: showRate(l.rate),
	version: String(l.version),
	used: l.used,
	tasks: l.tasks,
	held_by: l.heldBy,
	queues: l.queues,
});

const showBatch = (b: BatchInfo): Fields => ({
	id: b.id,
	state: b.state,
	counts: b.counts,
	labels: b.labels,
	on_done: b.onDone,
	on_success: b.onSuccess,
	done_task: b.doneTask,
	success_task: b.successTask,
	refused: b.refused?.code ?? "",
	cancel: b.cancel?.reason ?? null,
	replayed: b.replayed,
});

const followUp = (s: Fields): FollowUp => jobOf(s).followUp((s.args as string) ?? "null", optionsOf(s));

/** Carries out a command about limiters and batches. */
async function share(c: Client, s: Fields): Promise<unknown> {
	const limiter = c.limiter((s.name as string) ?? "");
	const batch = c.batch((s.id as string) ?? "");
	const version = some(s, { if_version: "ifVersion" });
	switch (s.do) {
		case "limiter_set": {
			const rate = readRate(s.rate);
			return showLimiter(
				await limiter.set({ ...some(s, { concurrency: "concurrency" }), ...(rate && { rate }) }, version),
			);
		}
		case "limiter_get":
			return showLimiter(await limiter.get());
		case "limiters":
			return { limiters: await all(c.limiters(), showLimiter) };
		case "limiter_delete":
			await limiter.delete(version);
			return {};
		case "batch_open": {
			const o: BatchOptions = some(s, { id: "id", tag: "tag", labels: "labels" });
			if (s.on_done) o.onDone = followUp(s.on_done as Fields);
			if (s.on_success) o.onSuccess = followUp(s.on_success as Fields);
			const b = await c.openBatch(o);
			return { id: b.id, replayed: b.replayed };
		}
		case "batch_get":
			return showBatch(await batch.get());
		case "batch_seal":
			return showBatch(await batch.seal());
		case "batch_cancel":
			return showBatch(await batch.cancel(some(s, { reason: "reason", per_second: "rate", force: "force" })));
		case "batch_wait":
			return showBatch(await batch.wait(some(s, { timeout_ms: "timeout" })));
		case "batches":
			return { batches: await all(c.batches(), showBatch) };
	}
	throw new Unsupported();
}

/** Carries out a command about crons, queues, keys, bulk jobs, limiters and batches. */
export async function administer(c: Client, s: Fields): Promise<unknown> {
	const cron = c.cron((s.name as string) ?? "");
	const queue = c.queue((s.queue as string) ?? "");
	const key = s.key as string | undefined;
	const pause = some(s, { reason: "reason", for_ms: "for" });
	switch (s.do) {
		case "cron_set": {
			const args = (s.args as string) ?? "null";
			return showCron(await jobOf(s).cron(c, cron.name, s.schedule as string, args, cronOptions(s)));
		}
		case "cron_get":
			return showCron(await cron.get());
		case "crons":
			return { crons: await all(c.crons(), showCron) };
		case "cron_pause":
			return { replayed: await cron.pause() };
		case "cron_resume":
			return { replayed: await cron.resume() };
		case "cron_trigger":
			return showRun(await cron.trigger());
		case "cron_runs":
			return { runs: (await cron.runs()).map(showRun) };
		case "cron_delete":
			await cron.delete();
			return {};
		case "cron_preview": {
			const p = await c.previewCron(s.schedule as string, some(s, { zone: "zone", count: "count" }));
			const shown = p.changes.map((d) => ({
				at: moment(d.at),
				by_ms: d.by,
				words: d.words,
				slots: d.slots.length,
			}));
			return { words: p.words, times: p.times, changes: shown };
		}
		case "queue_get":
			return showConfig(await queue.config());
		case "queue_set": {
			const settings = changes(s.settings as Fields) as QueueSettings;
			return { version: String(await queue.set(settings, some(s, { if_version: "ifVersion" }))) };
		}
		case "queue_update":
			return { version: String(await queue.update(changes(s.settings as Fields))) };
		case "queue_delete":
			await queue.delete(some(s, { purge: "purge" }));
			return {};
		case "queue_pause":
			return { replayed: await (key === undefined ? queue.pause(pause) : queue.pauseKey(key, pause)) };
		case "queue_resume":
			return { replayed: await (key === undefined ? queue.resume() : queue.resumeKey(key)) };
		case "queue_key": {
			const rate = readRate(s.rate);
			const settings = { ...some(s, { weight: "weight", concurrency: "concurrency" }), ...(rate && { rate }) };
			return { replayed: await queue.setKey(key!, settings) };
		}
		case "bulk_start":
			return showBulk(await c.startBulk(s.action as BulkAction, bulkOptions(s)));
		case "bulk_count": {
			const n = await c.countBulk(s.action as BulkAction, bulkOptions(s));
			return { count: n.count, exact: n.exact, sample: n.sample.map((t) => t.id) };
		}
		case "bulk_get":
			return showBulk(await c.bulk(s.id as string).get());
		case "bulks":
			return { bulks: (await c.bulks()).map(showBulk) };
		case "bulk_stop":
			return { replayed: await c.bulk(s.id as string).stop() };
		case "redrive": {
			const { queue: _, ...o } = bulkOptions(s);
			return showBulk(await queue.redrive(o));
		}
		case "queue_keys":
			return { keys: await all(queue.keys(some(s, { sort: "sort", prefix: "prefix" })), showKey) };
	}
	return share(c, s);
}
