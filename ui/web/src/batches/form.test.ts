import { expect, test } from "vitest";
import { atField, blank, blocked, type Form, opOf, wrongOf } from "./form";

const with_ = (more: Partial<Form>): Form => ({ ...blank, ...more });

test("an empty form opens a batch that makes nothing", () => {
	expect(opOf(blank)).toEqual({});
	expect(blocked(wrongOf(blank))).toBe(false);
});

test("what is typed is what is asked for, and payloads are the bytes that were typed", () => {
	const f = with_({
		done: { queue: " reports ", kind: "", payload: ' {"n": 9007199254740993} ' },
		success: { queue: "publish", kind: "publish.now", payload: "" },
		tag: "order 7",
		labels: "of=import\ncustomer=a=b\n",
	});
	expect(blocked(wrongOf(f))).toBe(false);
	const op = opOf(f);
	expect(atob(op.on_done?.payload_base64 ?? "")).toBe('{"n": 9007199254740993}');
	expect(op).toEqual({
		on_done: { queue: "reports", payload_base64: op.on_done?.payload_base64 },
		on_success: { queue: "publish", kind: "publish.now" },
		tag: "order 7",
		labels: { of: "import", customer: "a=b" },
	});
});

test("what is wrong is said at its field", () => {
	const w = wrongOf(
		with_({
			done: { queue: "", kind: "k", payload: "{" },
			success: { queue: "no queue", kind: "-", payload: "" },
			tag: "é".repeat(65),
			labels: "nothing",
		}),
	);
	expect(w.done.queue).toBe("is required with a kind or a payload");
	expect(w.done.payload).toBeTruthy();
	expect(Object.keys(w.success)).toEqual(["queue", "kind"]);
	expect(w.tag).toBe("must have at most 128 bytes");
	expect(w.labels).toContain("nothing");
	expect(blocked(w)).toBe(true);
	const many = Array.from({ length: 17 }, (_, i) => `l${i}=v`).join("\n");
	expect(wrongOf(with_({ labels: many })).labels).toBe("must be at most 16");
});

test("a refusal stands at the field that it names", () => {
	const said = (field: string) => ({ field, message: "no" });
	expect(atField(said("ops[0].batch_open.on_done.queue"), "on_done.queue")).toBe("no");
	expect(atField(said("ops[0].on_done.payload_base64"), "on_done.payload")).toBe("no");
	expect(atField(said("ops[0].on_success.queue"), "on_done.queue")).toBeUndefined();
	expect(atField(said("ops[0].labels"), "labels")).toBe("no");
	expect(atField(undefined, "tag")).toBeUndefined();
});
