// Which node a stream goes to, played by servers whose frames the tests write.
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { placeOfText } from "../src/core/place.js";
import { Renewer } from "../src/core/renewer.js";
import { Unled } from "../src/core/retry.js";
import { job } from "../src/index.js";
import { Fake, type FakeStream } from "./fake.js";

let a: Fake;
let b: Fake;
beforeEach(async () => {
	[a, b] = await Promise.all([Fake.start(), Fake.start()]);
});
afterEach(async () => {
	vi.useRealTimers();
	await Promise.all([a.close(), b.close()]);
});

const one = job<number, number>("one");
/** A tag of each of two partitions. */
const tags = [0, 1].map((p) => {
	for (let i = 0; ; i++) if (placeOfText(`t${i}`, 2) === p) return `t${i}`;
});

async function created(s: FakeStream): Promise<string> {
	const f = await s.next("create");
	s.ack(f.seq, { created: f.tasks.map((t) => ({ id: t.id })) });
	return f.tasks[0]!.id;
}

it("goes to the leader that a node names", async () => {
	const p = one.add(a.client(), 1);
	(await a.accept()).refuse({ code: "NOT_LEADER", leader: b.address });
	const id = await created(await b.welcome());
	expect((await p).id).toBe(id);
});

it("stays where it is when the leader that is named is not for plain text", async () => {
	const p = one.add(a.client(), 1);
	(await a.accept()).refuse({ code: "NOT_LEADER", leader: "203.0.113.7:7081" });
	const s = await a.welcome({ nodes: ["203.0.113.7:7081"] });
	await created(s);
	await p;
});

it("leaves a node that is not reached for the next", async () => {
	const { address } = a;
	await a.close();
	const p = one.add(b.client({ url: `${address},${b.address}` }), 1);
	await created(await b.welcome());
	await p;
});

it("leaves a node that knows of no leader for long", async () => {
	a.onStream = (s) => s.refuse({ code: "UNAVAILABLE", reason: "no_leader" });
	const p = one.add(a.client({ url: `${a.address},${b.address}` }), 1);
	await created(await b.welcome());
	await p;
});

it("gives nodes that know of no leader longer with each round", () => {
	const u = new Unled();
	expect(u.leave("a", 1, 0)).toBe(false);
	let now = 0;
	const given: number[] = [];
	for (let at = 0; given.length < 7; at ^= 1) {
		const since = now;
		while (!u.leave(String(at), 2, now)) now += 50;
		given.push(now - since);
	}
	expect(given).toEqual([300, 300, 600, 600, 1200, 1200, 2400]);
	u.forget();
	const since = now;
	while (!u.leave("a", 2, now)) now += 50;
	expect(now - since).toBe(300);
});

it("leaves a node that is silent when another one leads, and sends there what has no answer", async () => {
	const c = a.client({ url: `${a.address},${b.address}` });
	const p = one.add(c, 1);
	const s = await a.welcome();
	const frame = await s.next("create");
	// Nothing is answered. The other node is asked by a stream, which it lets in.
	await b.welcome();
	const t = await b.welcome();
	expect(t.hello.session).toEqual(s.hello.session);
	expect(await created(t)).toBe(frame.tasks[0]!.id);
	await p;
});

it("stays with a node that is silent while the others name it", async () => {
	const c = a.client({ url: `${a.address},${b.address}` });
	const p = one.add(c, 1);
	const s = await a.welcome();
	const frame = await s.next("create");
	(await b.accept()).refuse({ code: "NOT_LEADER", leader: a.address });
	await b.accept();
	s.ack(frame.seq, { created: frame.tasks.map((t) => ({ id: t.id })) });
	await p;
});

it("sends calls to the leaders of their partitions, as they are named and as they move", async () => {
	const c = a.client();
	const calls = tags.map((tag) => one.add(c, 1, { tag }));
	const directory = [{ partition: 0 }, { partition: 1, address: b.address }];
	const s = await a.welcome({ partitions: 2, directory, nodes: [a.address, b.address] });
	const t = await b.welcome({ partitions: 2 });
	expect([s.hello.partition, t.hello.partition]).toEqual([0, 1]);
	const ids = [await created(s), await created(t)];
	expect((await Promise.all(calls)).map((h) => h.id)).toEqual(ids);
	// The second partition moves to the first node, and only it.
	const moved = one.add(c, 1, { tag: tags[1]! });
	await t.next("create");
	t.refuse({ code: "NOT_LEADER", leader: a.address });
	await created(await a.welcome({ partitions: 2 }, 1));
	await moved;
	const stays = one.add(c, 1, { tag: tags[0]! });
	await created(s);
	await stays;
});

it("takes in leaders that a node tells of later", async () => {
	const c = a.client();
	const first = one.add(c, 1, { tag: tags[0]! });
	const s = await a.welcome({ partitions: 2 });
	await created(s);
	await first;
	s.send("directory", { partitions: [{ partition: 1, address: b.address }], nodes: [a.address, b.address] });
	// What comes after the directory is read after it.
	const next = one.add(c, 1, { tag: tags[0]! });
	await created(s);
	await next;
	const p = one.add(c, 1, { tag: tags[1]! });
	await created(await b.welcome({ partitions: 2 }, 1));
	await p;
});

it("renews leases at the leader of each partition while the loop does not answer", async () => {
	// The loop's beat stands still, and the loop itself goes on: it plays the servers.
	vi.useFakeTimers({ toFake: ["setInterval"] });
	const renewed = new Map<string, Fake>();
	let done = (): void => {};
	const all = new Promise<void>((resolve) => {
		done = resolve;
	});
	const note = (f: Fake, ids: string[]): void => {
		for (const id of ids) renewed.set(id, f);
		if (renewed.size === 3) done();
	};
	a.onHeartbeat = (r) => {
		const ids = r.items.map((x) => x.id);
		if (ids.includes("moved")) return { code: "NOT_LEADER", message: "elsewhere", leader: b.address };
		note(a, ids);
		return undefined;
	};
	b.onHeartbeat = (r) => {
		note(
			b,
			r.items.map((x) => x.id),
		);
		return undefined;
	};
	const gone = await Fake.start();
	await gone.close();
	const r = new Renewer({
		addresses: [a.address],
		token: "t",
		namespace: "default",
		tls: undefined,
		stall: 60_000,
		logger: console,
		lost: () => {},
	});
	try {
		const nodes = [gone.address, b.address, a.address];
		r.reach(0, a.address, nodes);
		r.reach(1, a.address, nodes);
		r.reach(2, gone.address, nodes);
		["stays", "moved", "away"].forEach((id, p) => {
			r.add(id, 7n, 600, "one", p);
		});
		await all;
		expect(renewed.get("stays")).toBe(a);
		expect(renewed.get("moved")).toBe(b);
		// Any of the others may be asked: a slow one is passed over.
		expect([a, b]).toContain(renewed.get("away"));
	} finally {
		await r.close();
	}
});
