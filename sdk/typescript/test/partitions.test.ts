// A namespace of four partitions on a real server.
import { execFileSync } from "node:child_process";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { idIn, parseId, partitionOf, placeOfKey, placeOfText } from "../src/core/place.js";
import { Client, job, type MillraceError, newId, Worker } from "../src/index.js";
import { type DevServer, devServer } from "../src/testing.js";

const binary = process.env.MILLRACE_BIN;
const of = 4;
const namespace = "wide";
let server: DevServer;
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
	if (!binary) return;
	server = await devServer({ binary, http: true });
	const at = ["--server", server.url, "--token", server.token];
	execFileSync(binary, ["namespace", "create", namespace, "--partitions", String(of), ...at]);
});
afterEach(async () => {
	await Promise.all(open.splice(0).map((c) => c.close()));
});
afterAll(() => server?.stop());

function client(): Client {
	const c = new Client({ url: server.url, token: server.token, namespace });
	open.push(c);
	return c;
}

/** A client of each transport, which knows of no queue. */
const fresh: Record<string, () => Client> = {
	stream: client,
	rest: () => {
		const c = new Client({
			url: server.http,
			token: server.token,
			namespace,
			transport: "rest",
		});
		open.push(c);
		return c;
	},
};

const placeOf = (id: string): number => partitionOf(parseId(id)!);
/** A tag of each partition. */
const tags = Array.from({ length: of }, (_, p) => {
	for (let i = 0; ; i++) if (placeOfText(`t/${i}`, of) === p) return `t/${i}`;
});
const real = it.skipIf(!binary);

real(
	"places tasks by tag, and ends their waits, in every partition (skipped where MILLRACE_BIN names no server)",
	async () => {
		const c = client();
		const each = job<number, number>("each");
		const w = new Worker(c, [each.handle((_, n) => n * 2)], { slots: 8 });
		const over = w.run({ signals: false });
		const handles = await Promise.all(tags.map((tag, n) => each.add(c, n, { tag })));
		expect(handles.map((h) => placeOf(h.id))).toEqual([0, 1, 2, 3]);
		expect(await Promise.all(handles.map((h) => h.wait()))).toEqual([0, 2, 4, 6]);
		// Another client, which does not know how many partitions there are as it begins to wait.
		const other = client();
		expect(await Promise.all(handles.map((h) => each.of(other, h.id).wait()))).toEqual([0, 2, 4, 6]);
		expect((await other.task(handles[3]!.id)).state).toBe("completed");
		expect((await c.queue("each").stats()).completed).toBe(4);
		const missing = newId();
		await expect(other.task(missing)).rejects.toMatchObject({ code: "NOT_FOUND" });
		await w.stop();
		await over;
	},
);

real("adds many over the partitions, and all or none in one (skipped where MILLRACE_BIN names no server)", async () => {
	const c = client();
	const many = job<number, number>("many");
	const handles = await many.addMany(
		c,
		Array.from({ length: 200 }, (_, i) => i),
	);
	expect(new Set(handles.map((h) => placeOf(h.id)))).toEqual(new Set([0, 1, 2, 3]));
	expect((await c.queue("many").stats()).ready).toBe(200);
	const all = await many.addAll(c, [1, 2, 3]);
	expect(new Set(all.map((h) => placeOf(h.id))).size).toBe(1);
	const tagged = await many.addAll(c, [1, 2, 3], { tag: tags[2]! });
	expect(tagged.map((h) => placeOf(h.id))).toEqual([2, 2, 2]);
	// An id whose partition is open is filled in, and one that names another partition than the tag is refused here.
	const id = newId();
	const h = await many.add(c, 1, { id, tag: tags[1]! });
	expect([placeOf(id), placeOf(h.id)]).toEqual([0, 1]);
	await expect(many.add(c, 1, { id: h.id, tag: tags[3]! })).rejects.toMatchObject({
		code: "WRONG_PARTITION",
		field: "id",
		outcome: "refused",
	});
	expect((await many.add(c, 1, { id: h.id, tag: tags[1]! })).replayed).toBe(true);
});

real(
	"commits in the partition of its keys, and refuses one over several (skipped where MILLRACE_BIN names no server)",
	async () => {
		const next = job<number, number>("next");
		for (const [p, tag] of tags.entries()) {
			const c = client();
			const tx = c.tx();
			tx.kv("k").put(`{${tag}}a`, String(p));
			// The id is made with the commit: it is not known yet how many partitions there are.
			const h = next.addTx(tx, 1);
			const done = await tx.commit();
			expect(done.at!.partition).toBe(p);
			expect(placeOf(h.id)).toBe(p);
			expect((await c.kv("k").get(`{${tag}}a`))!.text).toBe(String(p));
			expect((await c.task(h.id)).state).toBe("ready");
		}
		const c = client();
		const stray = async (): Promise<MillraceError> => {
			const tx = c.tx();
			tx.kv("k").put(`{${tags[1]}}x`, "1");
			tx.kv("k").put(`{${tags[2]}}x`, "1");
			tx.kv("k").put(`{${tags[1]}}y`, "1");
			tx.kv("k").put(`{${tags[0]}}x`, "1");
			return tx.commit().then(
				() => expect.unreachable(),
				(e) => e,
			);
		};
		for (const e of [await stray(), await stray()]) {
			expect(e).toMatchObject({ code: "WRONG_PARTITION", op: 1, outcome: "refused", details: { ops: "1,3" } });
			expect(e.message).toContain("outside the commit's partition 1: ops[1] of partition 2, ops[3] of partition 0");
		}
		expect(await c.kv("k").get(`{${tags[1]}}x`)).toBeUndefined();
		const tx = c.tx();
		tx.kv("k").check(`{${tags[3]}}c`, { absent: true });
		tx.kv("k").put(`{${tags[1]}}x`, "1");
		await expect(tx.commit()).rejects.toMatchObject({ code: "WRONG_PARTITION", op: -2, field: "conditions[0].key" });
	},
);

real(
	"applies effects with the task, and fails an attempt whose effects stray (skipped where MILLRACE_BIN names no server)",
	async () => {
		const c = client();
		const child = job<number, number>("child");
		const parent = job<string, string>("parent", { attempts: 1 });
		const made: string[] = [];
		const w = new Worker(
			c,
			[
				parent.handle(async (t, key) => {
					made.push(child.addTx(t.fx, 1).id);
					t.fx.kv("k").put(key, t.id);
					const tx = t.tx();
					tx.kv("k").put(`{${t.tag}}mid`, "1");
					await tx.commit();
					t.progress(50);
					return t.tag;
				}),
				child.handle((_, n) => n),
			],
			{ slots: 4 },
		);
		const over = w.run({ signals: false });
		for (const [p, tag] of tags.entries()) {
			const h = await parent.add(c, `{${tag}}done`, { tag });
			expect(await h.wait()).toBe(tag);
			expect((await c.kv("k").get(`{${tag}}done`))!.text).toBe(h.id);
			expect((await c.kv("k").get(`{${tag}}mid`))!.text).toBe("1");
			expect(placeOf(made.at(-1)!)).toBe(p);
			expect(await child.of(c, made.at(-1)!).wait()).toBe(1);
		}
		const away = await parent.add(c, `{${tags[1]}}away`, { tag: tags[0]! });
		await expect(away.wait()).rejects.toMatchObject({ state: "dead", code: "WRONG_PARTITION" });
		expect(await c.kv("k").get(`{${tags[1]}}away`)).toBeUndefined();
		await w.stop();
		await over;
	},
);

real(
	"serves all partitions with fewer slots, and runs no more handlers than slots (skipped where MILLRACE_BIN names no server)",
	async () => {
		const c = client();
		const slow = job<number, number>("slow");
		let running = 0;
		let most = 0;
		const w = new Worker(
			c,
			[
				slow.handle(async (_, n) => {
					most = Math.max(most, ++running);
					await new Promise((r) => setImmediate(r));
					running--;
					return n;
				}),
			],
			{ slots: 2 },
		);
		const over = w.run({ signals: false });
		const handles = await Promise.all(Array.from({ length: 80 }, (_, n) => slow.add(c, n, { tag: tags[n % of]! })));
		expect(await Promise.all(handles.map((h) => h.wait()))).toEqual(handles.map((_, n) => n));
		// One at a time, each where no slot is perhaps.
		for (const tag of [...tags, ...tags]) expect(await (await slow.add(c, 7, { tag })).wait()).toBe(7);
		expect(most).toBeLessThanOrEqual(2);
		expect((await c.queue("slow").stats()).completed).toBe(88);
		await w.stop();
		await over;
	},
);

real("reads keys of one partition there (skipped where MILLRACE_BIN names no server)", async () => {
	const c = client();
	for (let i = 0; i < 12; i++) await c.kv("one").put(`key/${i}`, String(i));
	const other = client();
	for (let i = 0; i < 12; i++) expect((await other.kv("one").get(`key/${i}`))!.text).toBe(String(i));
	const seen: string[] = [];
	for await (const { key } of other.kv("one").range({ prefix: "key/" })) seen.push(key.toString());
	expect(seen.sort()).toEqual(Array.from({ length: 12 }, (_, i) => `key/${i}`).sort());
	expect(new Set(seen.map((k) => placeOfKey(k, of))).size).toBeGreaterThan(1);
});

for (const transport of ["stream", "rest"] as const) {
	real(
		`keeps the tasks of a queue that is bounded as a whole in one partition, over ${transport} (skipped where MILLRACE_BIN names no server)`,
		async () => {
			const dial = fresh[transport]!;
			const c = dial();
			const bounded = job<number, number>(`bounded-${transport}`);
			const places = async (...handles: { id: string }[]): Promise<number[]> => {
				for (const h of handles.slice(0, 5)) expect((await c.task(h.id)).id).toBe(h.id);
				return [...new Set(handles.map((h) => placeOf(h.id)))];
			};
			// It is not bounded yet: the key says where the task is.
			expect(await places(await bounded.add(c, 0, { key: tags[3]! }))).toEqual([3]);
			await c.queue(bounded.queue).update({ concurrency: 1 });
			expect(await places(await bounded.add(c, 1, { key: tags[3]! }))).toEqual([0]); // the client finds out
			expect(await places(await bounded.add(dial(), 2, { unique: tags[2]! }))).toEqual([0]);
			const id = newId();
			expect((await bounded.add(dial(), 3, { id })).id).toBe(id); // its partition was open
			const refused = { code: "WRONG_PARTITION", reason: "queue_pinned", outcome: "refused" };
			await expect(bounded.add(dial(), 4, { tag: tags[1]! })).rejects.toMatchObject(refused);
			await expect(bounded.add(dial(), 4, { id: idIn(2, of) })).rejects.toMatchObject(refused);
			const hundred = Array.from({ length: 100 }, (_, i) => i);
			for (const x of [dial(), c]) {
				expect(await places(...(await bounded.addMany(x, hundred)))).toEqual([0]);
				expect(await places(...(await bounded.addMany(x, hundred, { key: tags[2]! })))).toEqual([0]);
				expect(await places(...(await bounded.addAll(x, hundred, { key: tags[1]! })))).toEqual([0]);
			}
			const all = dial();
			await job<number>("free").add(all, 1, { tag: tags[1]! }); // it knows the partitions from here on
			expect(await places(...(await bounded.addAll(all, hundred, { key: tags[1]! })))).toEqual([0]);
			for (const known of [false, true]) {
				const x = dial();
				if (known) await job<number>("free").add(x, 1, { tag: tags[1]! });
				const tx = x.tx();
				const first = bounded.addTx(tx, 5, { key: tags[2]! });
				const next = bounded.addTx(tx, 6, { key: tags[3]!, after: [first] });
				expect((await tx.commit()).at!.partition).toBe(0);
				expect(await places(first, next)).toEqual([0]);
				expect((await c.task(next.id)).after.map((d) => d.id)).toEqual([first.id]);
			}
			for (const x of [dial(), c]) {
				// A batch that makes such a task is there too.
				const open = hundred.slice(0, 8).map(() => x.openBatch({ onDone: bounded.followUp(6) }));
				for (const b of await Promise.all(open)) expect(placeOf(b.id)).toBe(0);
			}
			// When the limit goes, keys say again where tasks are.
			await c.queue(bounded.queue).update({ concurrency: null });
			expect(await places(await bounded.add(c, 7, { key: tags[3]! }))).toEqual([3]);
		},
	);
}
