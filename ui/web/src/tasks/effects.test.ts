import { expect, test } from "vitest";
import { show } from "./effects";

test("each kind of op has its glyph, its words and its link", () => {
	expect(show({ op: "kv_put", space: "sent", key: "order/7", rev: "9", now: "current" }, "d")).toEqual({
		icon: "key",
		noun: "key",
		verb: "put",
		target: "sent/order/7",
		detail: "rev 9",
		full: "",
		link: { to: "/$ns/kv/$keyspace", params: { ns: "d", keyspace: "sent" }, search: { key: "order/7" } },
		now: "still current",
	});
	const ref = show({ op: "ref_update", space: "app", key: "refs/heads/main", to: "c".repeat(40), now: "changed" }, "d");
	expect([ref.target, ref.detail, ref.full, ref.now]).toEqual([
		"app refs/heads/main",
		"→ cccccccc…",
		"c".repeat(40),
		"overwritten since",
	]);
	const sym = show({ op: "symref_create", space: "app", key: "HEAD", to: "refs/heads/main" }, "d");
	expect([sym.noun, sym.verb, sym.detail, sym.now]).toEqual(["ref", "create", "→ refs/heads/main", ""]);
	const point = show({ op: "vector_upsert", space: "people", key: "w1", rev: "0/412", now: "gone" }, "d");
	expect([point.detail, point.now]).toEqual(["version 0/412", "deleted since"]);
	expect(point.link).toMatchObject({ search: { collection: "people", id: "w1" } });
	const task = show({ op: "task_create", space: "audit", key: "01KAJ0C7Q4G0AAAAAAAAAA7Q2M", now: "current" }, "d");
	expect([task.icon, task.target, task.detail, task.now]).toEqual([
		"plus",
		"01KAJ0C7Q4G0AAAAAAAAAA7Q2M",
		"in audit",
		"still there",
	]);
	expect(show({ op: "queue_pause", space: "mail" }, "d")).toMatchObject({
		noun: "queue",
		verb: "pause",
		target: "mail",
	});
});

test("a removal stands while nothing is there", () => {
	expect(show({ op: "kv_delete", space: "a", key: "b", now: "current" }, "d").now).toBe("still absent");
	expect(show({ op: "kv_delete", space: "a", key: "b", now: "changed" }, "d").now).toBe("written again since");
	expect(show({ op: "kv_delete_range", space: "a", key: "7/", now: "unknown" }, "d")).toMatchObject({
		target: "a/7/…",
		verb: "delete range",
		now: "",
		link: { search: { prefix: "7/" } },
	});
});

test("bytes that are not text are shown, and what is hidden or cut has no link", () => {
	expect(show({ op: "kv_put", space: "t", key_base64: "/wABYg==" }, "d").target).toBe("t/\\xff\\x00\\x01b");
	expect(show({ op: "kv_put", space: "t", key: "long", cut: true }, "d")).toMatchObject({
		target: "t/long…",
		link: undefined,
	});
	expect(show({ op: "kv_put" }, "d")).toMatchObject({ target: "", link: undefined });
});

test("an op that this page does not know is shown by its name", () => {
	expect(show({ op: "lock_take", space: "x", key: "y" }, "d")).toMatchObject({
		icon: "dot",
		noun: "lock",
		verb: "take",
		target: "x/y",
	});
});
