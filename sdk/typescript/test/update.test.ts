// An update keeps the settings of a newer server that this version of the library does not know.
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { afterEach, expect, it } from "vitest";
import { KeyLimits, QueueConfig, Rate, SetQueueRequest, SetQueueResponse } from "../src/gen/millrace/v1/task.js";
import { Client, type QueueChanges } from "../src/index.js";
import { methods } from "../src/methods.js";
import { Fake } from "./fake.js";
import { Canned } from "./http.js";

const closers: (() => unknown)[] = [];
afterEach(async () => {
	for (const c of closers.splice(0).reverse()) await c();
});

/** Encodes a field of bytes. */
const field = (n: number, bytes: Uint8Array): Buffer =>
	Buffer.from(
		new BinaryWriter()
			.uint32((n << 3) | 2)
			.bytes(bytes)
			.finish(),
	);

/** Field 5,000 with the number 7, which this version does not know. */
const more = Buffer.from(new BinaryWriter().uint32(40_000).uint32(7).finish());
const rate = Rate.fromPartial({ limit: 5n });
const perKey: KeyLimits = { concurrency: 2n, rate };
const known = QueueConfig.fromPartial({ version: 8n, maxAttempts: 7, order: 6 as never });
/** What is known and not of a message together. */
const both = (...parts: Uint8Array[]): Buffer => Buffer.concat([...parts, more]);
const newer = both(
	QueueConfig.encode(known).finish(),
	field(
		23,
		both(KeyLimits.encode({ ...perKey, rate: undefined }).finish(), field(2, both(Rate.encode(rate).finish()))),
	),
);

it("over gRPC", async () => {
	const fake = await Fake.start();
	closers.push(() => fake.close());
	const asked: Buffer[] = [];
	fake.calls["QueueService/Get"] = () => field(1, newer);
	fake.calls["QueueService/Set"] = (raw) => {
		asked.push(Buffer.from(raw));
		return SetQueueResponse.encode(SetQueueResponse.fromPartial({ version: 9n })).finish();
	};
	const q = fake.client({ transport: "stream" }).queue("q");
	// What is not known follows, and servers merge it into what is before it.
	const ofKeys = field(23, both(field(2, more)));
	const wanted = (fields: Partial<QueueConfig>, ...besides: Buffer[]): Buffer => {
		const config = { ...known, perKey, version: 0n, ...fields };
		const set = SetQueueRequest.encode({ queue: "q", config, ifVersion: 8n }).finish();
		return Buffer.concat([set, field(2, Buffer.concat(besides))]);
	};
	const rows: [QueueChanges, Partial<QueueConfig>][] = [
		[{ concurrency: 3 }, { concurrency: 3n }],
		[{ order: "strict" }, { order: 1 }],
		[
			{ order: "fifo", attempts: null },
			{ order: 0, maxAttempts: 0 },
		],
	];
	for (const [changes, fields] of rows) {
		expect(await q.update(changes)).toBe(9n);
		expect(asked.at(-1)).toEqual(wanted(fields, ofKeys, more));
	}
	// What the caller sets replaces what was kept.
	await q.update({ perKey: { concurrency: 4 } });
	expect(asked.at(-1)).toEqual(wanted({ perKey: { concurrency: 4n, rate: undefined } }, more));
});

const was = {
	max_attempts: 7,
	new: { a: [1, "é"] },
	order: "newest",
	per_key: { concurrency: 2, new: "9007199254740993", rate: { limit: 5, per: "1s", new: true } },
	retry: { factor: 3, new: "x" },
};

it("over REST", async () => {
	const played = await Canned.start();
	closers.push(() => played.close());
	const asked: { match: unknown; body: unknown }[] = [];
	played.answers["/v1/queues/q"] = (q) => {
		if (q.method === "GET") return { status: 200, body: { version: "8", gone: null, ...was } };
		asked.push({ match: q.headers["if-match"], body: JSON.parse(q.body) });
		return { status: 200, body: { version: "9" } };
	};
	const c = new Client({ url: played.address, transport: "rest" });
	closers.push(() => c.close());
	const q = c.queue("q");
	expect(await q.update({ concurrency: 3 })).toBe(9n);
	expect(asked.at(-1)).toEqual({ match: '"8"', body: { ...was, concurrency: 3 } });
	// What is set replaces what was kept, the default too.
	const { per_key: _, ...others } = was;
	await q.update({ order: "strict", perKey: null });
	expect(asked.at(-1)!.body).toEqual({ ...others, order: "strict" });
	const { order: __, ...rest } = was;
	await q.update({ order: "fifo", perKey: { concurrency: 4 } });
	expect(asked.at(-1)!.body).toEqual({ ...rest, per_key: { concurrency: 4 } });
	// Each way refuses what came by the other one.
	const refused = { code: "INVALID_ARGUMENT", field: "config" };
	const sets = asked.length;
	const byRest = (await c.raw(methods.getQueue, { queue: "q", stale: false })).config;
	const fake = await Fake.start();
	closers.push(() => fake.close());
	fake.calls["QueueService/Get"] = () => field(1, more);
	const other = fake.client({ transport: "stream" });
	const byGrpc = (await other.raw(methods.getQueue, { queue: "q", stale: false })).config;
	await expect(other.raw(methods.setQueue, { queue: "q", config: byRest, ifVersion: 8n })).rejects.toMatchObject(
		refused,
	);
	await expect(c.raw(methods.setQueue, { queue: "q", config: byGrpc, ifVersion: 8n })).rejects.toMatchObject(refused);
	expect(asked).toHaveLength(sets);
});
