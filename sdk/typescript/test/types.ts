// What the types accept and refuse. tsc checks this file, and nothing runs it: a line that is marked must not compile.
import { z } from "zod";
import { Client, type Handle, job, Worker } from "../src/index.js";
import { runHandler } from "../src/testing.js";

export async function types(): Promise<void> {
	const c = new Client();
	const thumb = job("thumb", {
		input: z.object({ url: z.string(), width: z.number().default(300) }),
		output: z.string(),
	});
	const plain = job<{ n: number }, number>("plain");
	const tx = c.tx();

	const h: Handle<string> = await thumb.add(c, { url: "u" });
	const s: string = await h.wait({ timeout: "30s" });
	const n: number = await (await plain.add(c, { n: 1 }, { tag: "a", delay: 5, unique: "k" })).wait();
	const width = thumb.handle((_, a) => String(a.width + 1)); // the default is filled in
	const w = new Worker(c, [width, plain.handle((t, a) => a.n + t.attempt)], { slots: 4, drain: "25s" });
	const sum: bigint = await c.kv("k").add("a", 1);
	plain.addTx(tx, { n: 1 });

	// @ts-expect-error arguments must fit the schema
	await thumb.add(c, { url: 7 });
	// @ts-expect-error and be there
	await thumb.add(c, {});
	// @ts-expect-error arguments must fit the type
	await plain.add(c, { n: "1" });
	// @ts-expect-error options are those that there are
	await plain.add(c, { n: 1 }, { tags: "a" });
	// @ts-expect-error a client is required
	await plain.add({ n: 1 });
	// @ts-expect-error the result is what the job says
	const wrong: number = await h.wait();
	// @ts-expect-error a handler returns the result of its job
	plain.handle(() => "one");
	// @ts-expect-error and takes its arguments
	plain.handle((_, a: { m: number }) => a.m);
	// @ts-expect-error revisions are bigint
	tx.kv("k").put("a", 1, { ifRev: 3 });
	// @ts-expect-error a condition is one of those that there are
	tx.kv("k").check("a", { is: "equal" });
	// @ts-expect-error bindings, and not jobs, go to a worker
	new Worker(c, [plain]);
	// @ts-expect-error effects of a transaction fit the job too
	plain.addTx(tx, { m: 1 });
	// @ts-expect-error a policy for retries has backoffs that there are
	job("x", { retry: { backoff: "random" } });

	const cron: string = (await plain.cron(c, "n", "@daily", { n: 1 }, { zone: "UTC", overlap: "allow", key: "k" }))
		.words;
	const version: bigint = await c.queue("q").update({ concurrency: 3, rate: { limit: 10, per: "1m" }, perKey: null });
	const lease: number | undefined = (await c.queue("q").config()).lease;
	for await (const k of c.queue("q").keys({ sort: "backlog" })) void (k.ready + 1);
	// @ts-expect-error arguments of a cron must fit the type
	await plain.cron(c, "n", "@daily", { m: 1 });
	// @ts-expect-error an overlap is one of those that there are
	await plain.cron(c, "n", "@daily", { n: 1 }, { overlap: "maybe" });
	// @ts-expect-error what one task alone can have is no option of a cron
	await plain.cron(c, "n", "@daily", { n: 1 }, { delay: "5s" });
	// @ts-expect-error an order is one of those that there are
	await c.queue("q").set({ order: "random" });
	// @ts-expect-error null is for an update
	await c.queue("q").set({ concurrency: null });
	// @ts-expect-error settings are those that there are
	await c.queue("q").update({ colour: "red" });

	const used: number = (await c.limiter("n").set({ concurrency: 3, rate: { limit: 10, per: "1m" } })).used;
	const b = await c.openBatch({ onDone: plain.followUp({ n: 1 }, { priority: 3 }), labels: { a: "b" } });
	const state: string = (await b.seal()).state;
	await plain.add(c, { n: 1 }, { batch: b, limiters: ["n"] });
	// @ts-expect-error arguments of a follow-up must fit the type
	plain.followUp({ m: 1 });
	// @ts-expect-error what one task alone can have is no option of a follow-up
	plain.followUp({ n: 1 }, { delay: "5s" });
	// @ts-expect-error a batch makes what a job says it follows up with
	await c.openBatch({ onDone: plain });
	// @ts-expect-error limiters are a list
	await plain.add(c, { n: 1 }, { limiters: "n" });
	// @ts-expect-error weights are numbers
	new Worker(c, [width], { weights: { thumb: "3" } });

	await runHandler(width, { url: "u" });
	void [used, state];
	void [s, n, w, sum, wrong, cron, version, lease];
}
