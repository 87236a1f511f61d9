import { expect, test } from "vitest";
import { cut, inWords, type Known, matches, parse, quoted, readTime, suggest, write } from "./filter";

const now = Date.parse("2030-01-31T12:30:00Z");

test("each qualifier is read", () => {
	const p = parse(
		'queue:mail state:dead kind:mail.send label.order:7 label.a/b:"x y" worker:w-3 error:00000000000003f9 unique:order/7 batch:01KAJ0C7Q4G0AAAAAAAAAA5T8R after:12:00 before:2030-01-31T12:20Z',
		now,
		true,
	);
	expect(p.fault).toBeUndefined();
	expect(p.filter).toEqual({
		queue: "mail",
		state: "dead",
		kind: "mail.send",
		labels: { order: "7", "a/b": "x y" },
		worker: "w-3",
		fingerprint: "00000000000003f9",
		unique: "order/7",
		batch: "01KAJ0C7Q4G0AAAAAAAAAA5T8R",
		from: "2030-01-31T12:00:00.000Z",
		to: "2030-01-31T12:20:00.000Z",
	});
});

test("a filter that is written is read back", () => {
	const batch = "01KAJ0C7Q4G0AAAAAAAAAA5T8R";
	const f = { queue: "q", labels: { a: 'b "c" \\d', e: "" }, unique: "x y", worker: "w:1", batch };
	expect(parse(write(f), now).filter).toEqual(f);
	expect(parse(`unique:${quoted("a\\b")}`, now).filter.unique).toBe("a\\b");
});

test("the fault lies at the word that is wrong", () => {
	const at = (text: string) => {
		const f = parse(text, now).fault;
		return f && [text.slice(f.start, f.end), f.fault];
	};
	expect(at("queue:mail stat:dead")?.[0]).toBe("stat:dead");
	expect(at("queue:mail stat:dead")?.[1]).toMatch(/^there is no qualifier stat:/);
	expect(at("state:ded queue:mail")).toEqual([
		"state:ded",
		"must be one of ready, running, scheduled, blocked, completed, dead, cancelled",
	]);
	expect(at("queue:a queue:b")).toEqual(["queue:b", "queue: is given twice"]);
	expect(at("queue:")).toEqual(["queue:", "needs a value"]);
	expect(at("hello")).toEqual(["hello", "needs a qualifier, such as kind:hello"]);
	expect(at('unique:"a b')).toEqual(['unique:"a b', "a quote is open"]);
	expect(at("error:3f9c")?.[1]).toMatch(/16 hexadecimal/);
	expect(at("label.:x")?.[1]).toMatch(/must name a label/);
	expect(at("after:soon")?.[1]).toMatch(/must be a time/);
	expect(at("after:1h before:2h")).toEqual(["before:2h", "must be later than after:"]);
	expect(at("id:7")?.[1]).toMatch(/whole id/);
	expect(at("batch:7")?.[1]).toMatch(/whole id/);
	expect(at("queue:-x")?.[1]).toMatch(/begin with/);
	expect(at(`unique:${"é".repeat(129)}`)?.[1]).toMatch(/256 bytes/);
});

test("a whole id names its task", () => {
	const id = "01KAJ0C7Q4G0AAAAAAAAAA5T8R";
	expect(parse(id, now).id).toBe(id);
	expect(parse(`id:${id}`, now).id).toBe(id);
});

test("times are read in the zone that is shown", () => {
	expect(readTime("12:00", now, true)).toBe(Date.parse("2030-01-31T12:00:00Z"));
	expect(readTime("23:59", now, true)).toBe(Date.parse("2030-01-30T23:59:00Z")); // it has not come today
	expect(readTime("2h", now, true)).toBe(now - 7_200_000);
	expect(readTime("2030-01-30", now, true)).toBe(Date.parse("2030-01-30T00:00:00Z"));
	expect(readTime("2030-01-30T10:00+02:00", now, true)).toBe(Date.parse("2030-01-30T08:00:00Z"));
	expect(readTime("2030-13-30", now, true)).toBeUndefined();
	expect(readTime("24:00", now, true)).toBeUndefined();
});

test("words keep their places", () => {
	expect(cut(' a:b  "c d":e').map((w) => [w.start, w.end, w.key, w.value])).toEqual([
		[1, 4, "a:", "b"],
		[6, 13, "", "c d:e"],
	]);
});

const known: Known = {
	queues: ["mail", "mail.slow", "build"],
	kinds: ["mail.send"],
	workers: ["w-1"],
	labels: new Map([["order", new Set(["7", "8 9"])]]),
	errors: [{ fingerprint: "00000000000003f9", says: "SMTP 550" }],
};
const inserts = (text: string) => suggest(text, text.length, known).map((s) => s.insert);

test("suggestions complete the word at the caret", () => {
	expect(inserts("st")).toEqual(["state:"]);
	expect(inserts("queue:ma")).toEqual(["queue:mail ", "queue:mail.slow "]);
	expect(inserts("state:d")).toEqual(["state:dead "]);
	expect(inserts("label.o")).toEqual(["label.order:"]);
	expect(inserts("label.order:")).toEqual(["label.order:7 ", 'label.order:"8 9" ']);
	expect(inserts("error:smtp")).toEqual(["error:00000000000003f9 "]);
	expect(inserts("queue:mail ")).not.toContain("queue:"); // it is given
	expect(suggest("st queue:mail", 2, known).map((s) => s.insert)).toEqual(["state:"]);
});

test("a task leaves the filter when it is not what was asked for", () => {
	const f = parse("queue:mail state:ready label.order:7", now).filter;
	const t = { id: "1", queue: "mail", state: "ready", labels: { order: "7", x: "y" } } as const;
	expect(matches(f, t)).toBe(true);
	expect(matches(f, { ...t, state: "running" })).toBe(false);
	expect(matches(f, { ...t, labels: {} })).toBe(false);
	const batch = "01KAJ0C7Q4G0AAAAAAAAAA5T8R";
	expect(matches({ labels: {}, batch }, t)).toBe(false);
	expect(matches(parse(`batch:${batch.toLowerCase()}`, now).filter, { ...t, batch })).toBe(true);
});

test("a filter is said in words", () => {
	expect(inWords(parse("queue:mail state:dead label.order:7", now).filter)).toBe(
		"dead tasks in queue mail with label order = 7",
	);
	expect(inWords(parse("batch:01KAJ0C7Q4G0AAAAAAAAAA5T8R", now).filter)).toBe(
		"tasks of batch 01KAJ0C7Q4G0AAAAAAAAAA5T8R",
	);
	expect(inWords(parse("", now).filter)).toBe("tasks");
});
