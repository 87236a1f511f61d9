import { createServer } from "node:net";
import { expect, it } from "vitest";
import { z } from "zod";
import { Fatal, job, RetryIn, Snooze } from "../src/index.js";
import { Recorder, runHandler } from "../src/testing.js";

const mail = job<{ to: string }, string>("mail");
const thumb = job("thumb", {
	input: z.object({ url: z.string(), width: z.number().default(300) }),
	output: z.string(),
});

it("runs a handler without a server, and shows its effects", async () => {
	const b = thumb.handle((t, a) => {
		t.fx.kv("thumbs").put(t.id, Buffer.from([0, 255]), { ifAbsent: true });
		t.fx.kv("counts").add("n", 1, { ceiling: 10 });
		mail.addTx(t.fx, { to: "ada" }, { id: "01HF7YAT000000000000000085" });
		return `${a.url}@${a.width}`;
	});
	const r = await runHandler(b, { url: "u" });
	expect(r).toMatchObject({ settle: "complete", result: "u@300" });
	expect(r.effects).toEqual([
		{ op: "kv_put", keyspace: "thumbs", key: r.id, value_base64: "AP8=", if_absent: true },
		{ op: "kv_add", keyspace: "counts", key: "n", delta: 1, ceiling: 10 },
		{ op: "task_create", id: "01HF7YAT000000000000000085", queue: "mail", kind: "mail", payload: { to: "ada" } },
	]);
});

it("shows each way to end", async () => {
	const ends = async (f: () => never) => runHandler(mail.handle(f), { to: "x" });
	const raise = (e: unknown): never => {
		throw e;
	};
	expect(await ends(() => raise(new Fatal(new RangeError("no"))))).toMatchObject({
		settle: "fail",
		fatal: true,
		error: { code: "RangeError", message: "no" },
	});
	expect(await ends(() => raise(new RetryIn("5s", "later")))).toMatchObject({
		settle: "fail",
		fatal: false,
		delay: 5000,
	});
	expect(await ends(() => raise(new Snooze("1m")))).toMatchObject({ settle: "snooze", delay: 60_000 });
	expect(await ends(() => raise(Object.assign(new Error("m"), { code: "E1" })))).toMatchObject({
		settle: "fail",
		error: { code: "E1" },
	});
});

it("refuses arguments at the producer, and ends a task with bad ones for good", async () => {
	const c = new Recorder();
	await expect(thumb.add(c, { url: 7 } as never)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", field: "args" });
	expect(c.added(thumb)).toEqual([]);
	const loose = job<unknown, string>("thumb");
	await loose.add(c, { url: 7 });
	const [run] = await c.drain([thumb.handle(() => "never")]);
	expect(run).toMatchObject({ settle: "fail", fatal: true, error: { code: "invalid_args" } });
});

it("records what is added, runs it with its follow-ups, and dials nothing", async () => {
	let dialled = 0;
	const trap = createServer(() => dialled++).listen(0, "127.0.0.1");
	await new Promise((r) => trap.once("listening", r));
	const before = process.env.MILLRACE_URL;
	process.env.MILLRACE_URL = `127.0.0.1:${(trap.address() as { port: number }).port}`;
	try {
		const c = new Recorder();
		const h = await thumb.add(c, { url: "u" });
		expect(c.added(thumb)).toEqual([{ url: "u" }]);
		const runs = await c.drain([
			thumb.handle((t) => {
				mail.addTx(t.fx, { to: "ada" });
				return "done";
			}),
			mail.handle(() => "sent"),
		]);
		expect(runs.map((r) => r.result)).toEqual(["done", "sent"]);
		expect(await h.wait()).toBe("done");
		expect(c.added(mail)).toEqual([{ to: "ada" }]);
		await thumb.addMany(c, [{ url: "v" }, { url: "w" }]);
		const tx = c.tx();
		const later = thumb.addTx(tx, { url: "x" });
		await tx.commit();
		expect(c.added(thumb).map((a) => a.url)).toEqual(["u", "v", "w", "x"]);
		expect(later.id).toMatch(/^[0-9A-Z]{26}$/);
	} finally {
		if (before === undefined) delete process.env.MILLRACE_URL;
		else process.env.MILLRACE_URL = before;
		await new Promise((r) => trap.close(r));
	}
	expect(dialled).toBe(0);
});
