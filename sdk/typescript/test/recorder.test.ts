// Recorders judge as servers do: proto/conformance/commits.json is held to a server by the tests of Go.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
	type Changes,
	type Condition,
	Fatal,
	job,
	MillraceError,
	newId,
	RetryIn,
	Snooze,
	TaskError,
} from "../src/index.js";
import { Recorder, type TestRun } from "../src/testing.js";
import { apply, type Fields } from "./effects.js";

interface Case {
	name: string;
	keys?: Fields[];
	tasks?: Fields[];
	checks?: Fields[];
	ops: Fields[];
	refused?: { code: string; reason?: string; op?: number; field?: string; details?: { rev?: number; value?: string } };
	sums?: string[];
	after?: Record<string, string | null>;
}

const file = JSON.parse(readFileSync(new URL("../../../proto/conformance/commits.json", import.meta.url), "utf8")) as {
	commits: Case[];
};

/** A revision of the vectors as it was given. */
function number(revs: bigint[], n: number): bigint {
	if (n > 0 && n <= revs.length) return revs[n - 1]!;
	return n === 0 || revs.length === 0 ? BigInt(n) : revs.at(-1)! + BigInt(n - revs.length);
}

async function prepare(c: Recorder, v: Case): Promise<bigint[]> {
	const revs: bigint[] = [];
	for (const o of v.keys ?? []) {
		const value = o.value_base64 === undefined ? o.value : Buffer.from(o.value_base64 as string, "base64");
		revs.push(await c.kv("k").put(o.key as string, value));
	}
	for (const o of v.tasks ?? []) {
		const tx = c.tx();
		apply(o, tx);
		await tx.commit();
	}
	return revs;
}

const words = { equal: "equal", not_equal: "notEqual", less: "less", greater: "greater" } as const;

function conditionOf(o: Fields, revs: bigint[]): Condition {
	if (o.compare === "exists") return { exists: true };
	if (o.compare === "absent") return { absent: true };
	const is = words[o.compare as keyof typeof words];
	return o.rev === undefined ? { value: o.value as string, is } : { rev: number(revs, o.rev as number), is };
}

function fill(to: Changes, v: Case, revs: bigint[]): void {
	for (const o of v.checks ?? []) to.kv(o.keyspace as string).check(o.key as string, conditionOf(o, revs));
	for (const o of v.ops) apply(o.if_rev === undefined ? o : { ...o, if_rev: number(revs, o.if_rev as number) }, to);
}

async function judge(c: Recorder, v: Case, revs: bigint[], e: unknown, effects: boolean): Promise<void> {
	const want = v.refused;
	if (!want) expect(e).toBeUndefined();
	else {
		expect(e).toBeInstanceOf(MillraceError);
		const { code, reason, op, outcome, details, field } = e as MillraceError;
		const found: Record<string, string> = {};
		if (want.details?.rev !== undefined) found.rev = String(number(revs, want.details.rev));
		if (want.details?.value !== undefined) found.value = want.details.value;
		const wanted = { code: want.code, reason: want.reason, op: want.op, outcome: "refused", details: found };
		expect({ code, reason, op, outcome, details }).toEqual(wanted);
		if (!effects) expect(field).toBe(want.field);
	}
	for (const [key, value] of Object.entries(v.after ?? {}))
		expect((await c.kv("k").get(key))?.text ?? null, `key ${key}`).toBe(value);
}

it("has vectors", () => expect(file.commits.length).toBeGreaterThan(0));

describe.each(file.commits)("$name", (v) => {
	it("as a commit", async () => {
		const c = new Recorder();
		const revs = await prepare(c, v);
		const tx = c.tx();
		fill(tx, v, revs);
		const done = await tx.commit().catch((e: unknown) => e as MillraceError);
		await judge(c, v, revs, done instanceof MillraceError ? done : undefined, false);
		if (v.sums && !(done instanceof MillraceError))
			expect(done.sums.filter((n) => n !== undefined).map(String)).toEqual(v.sums);
	});

	it("as effects", async () => {
		const c = new Recorder();
		const revs = await prepare(c, v);
		const asked: MillraceError[] = [];
		const effects = job<boolean, number>("effects", { attempts: 1 });
		const b = effects.handle((t, ask) => {
			fill(t.fx, v, revs);
			if (ask)
				t.onRefused((e) => {
					asked.push(e);
					t.fx.reset();
				});
			return 7;
		});
		if (v.refused) {
			const h = await effects.add(c, false);
			const runs = await c.drain([b]);
			expect(runs).toMatchObject([{ settle: "fail", effects: [], error: { code: v.refused.code } }]);
			await judge(c, v, revs, runs[0]!.refused, true);
			const e = await h.wait().catch((e: unknown) => e);
			expect(e).toBeInstanceOf(TaskError);
			expect(e).toMatchObject({ state: "dead", code: v.refused.code });
		}
		const h = await effects.add(c, true);
		expect(await c.drain([b])).toMatchObject([{ settle: "complete" }]);
		expect(await h.wait()).toBe(7);
		await judge(c, v, revs, asked[0], true);
	});
});

const show = (runs: TestRun[]) => runs.map((r) => `${r.settle} ${r.error?.code ?? ""}`.trim());

it("tells what each attempt came to", async () => {
	const c = new Recorder();
	const first = job<string, string>("first", { attempts: 2 });
	const then = job<string, string>("then");
	let snoozed = false;
	const bindings = [
		first.handle((t, how) => {
			t.fx.kv("k").put(how, String(t.attempt));
			then.addTx(t.fx, `after ${how}`);
			if (how === "fails" || (how === "mends" && t.attempt === 1)) throw new RetryIn("1m", new RangeError("no luck"));
			if (how === "snoozes" && !snoozed) {
				snoozed = true;
				throw new Snooze("1h");
			}
			if (how === "refused") t.fx.kv("k").check("none", { exists: true });
			return `${how}!`;
		}),
		then.handle((_, a) => a),
	];
	const hs = await first.addMany(c, ["fails", "mends", "snoozes", "refused", "works"], { delay: "1h" });
	await job<string, string>("unknown").add(c, "x");
	const refused = "fail PRECONDITION_FAILED";
	const failed = "fail RangeError";
	const done = "complete";
	expect(show(await c.drain(bindings))).toEqual([
		...[failed, failed, failed, done, "snooze", refused, refused, done],
		...[done, done],
	]);
	expect(show(await c.drain(bindings))).toEqual([done, done]);
	expect(await c.drain(bindings)).toEqual([]);
	expect(c.added(then)).toEqual(["after mends", "after works", "after snoozes"]);
	expect(c.effects.map((e) => e.key ?? e.kind)).toEqual(["mends", "then", "works", "then", "snoozes", "then"]);
	expect(await hs[2]!.wait()).toBe("snoozes!");
	expect(await c.task(hs[0]!.id)).toMatchObject({ state: "dead", reason: "max_attempts", failures: 2 });
});

it("judges tasks", async () => {
	const c = new Recorder();
	const j = job<number, number>("j");
	const id = newId();
	expect([(await j.add(c, 1, { id })).replayed, (await j.add(c, 1, { id })).replayed]).toEqual([false, true]);
	await expect(j.add(c, 2, { id })).rejects.toMatchObject({ code: "ALREADY_EXISTS" });
	const h = await j.add(c, 3, { unique: "u" });
	expect(await j.add(c, 4, { unique: "u" })).toMatchObject({ id: h.id, replayed: true });
	await expect(j.add(c, 4, { unique: "u", onConflict: "reject" })).rejects.toMatchObject({ code: "ALREADY_EXISTS" });
	await expect(j.add(c, 5, { priority: 10 })).rejects.toMatchObject({ code: "INVALID_ARGUMENT", field: "priority" });
	const bad = job<number, number>("j", { queue: "a b" });
	await expect(bad.addMany(c, [6, 7])).rejects.toMatchObject({ errors: [{ field: "queue" }, { field: "queue" }] });
	await expect(j.addAll(c, [8, 9], { priority: 10 })).rejects.toMatchObject({ field: "tasks[0].priority" });
	expect(c.added(j)).toEqual([1, 3]);
	await c.cancel(h.id, { reason: "late" });
	await expect(h.wait()).rejects.toMatchObject({ state: "cancelled" });
});

it("ends a fence with its attempt, and keeps checkpoints", async () => {
	const c = new Recorder();
	const j = job<number, number>("j");
	let stale: ReturnType<Changes["kv"]> | undefined;
	let late: { commit(): Promise<unknown> } | undefined;
	await j.add(c, 1);
	const runs = await c.drain([
		j.handle(async (t) => {
			const tx = t.tx();
			if (!late) {
				late = tx;
				stale = tx.kv("k");
				await t.saveCheckpoint("far");
				throw new Error("once more");
			}
			stale!.put("a", "1");
			const e = await late.commit().catch((e: unknown) => e);
			if (!(e instanceof MillraceError)) throw new Fatal("a stale fence was let pass");
			tx.kv("k").put("b", `${e.code} ${e.op} ${t.checkpoint}`);
			await tx.commit();
			return 1;
		}),
	]);
	expect(show(runs)).toEqual(["fail Error", "complete"]);
	const keys: string[] = [];
	for await (const x of c.kv("k").range({ all: true })) keys.push(`${x.key}=${x.value.text}`);
	expect(keys).toEqual(["b=LEASE_LOST -1 far"]);
});

it("refuses what it lacks", async () => {
	const c = new Recorder();
	const lacks = { code: "INVALID_ARGUMENT", reason: "recorder", outcome: "refused" };
	await expect(c.queue("j").stats()).rejects.toMatchObject(lacks);
	const h = await job<number, number>("j").add(c, 1);
	await expect(h.wait()).rejects.toMatchObject({ code: "WRONG_STATE", reason: "recorder" });
	await expect(c.task(newId())).rejects.toMatchObject({ code: "NOT_FOUND" });
});
