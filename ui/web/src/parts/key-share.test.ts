import { expect, it } from "vitest";
import { addressable, keyFormOf, keySettingsOf, keyWrong, laneId, lanesOf, owedText, part } from "./key-share";

const answer = {
	keys: [
		{ key: "ann", tasks: 9, ready: 8, running: 1, owed: 3, oldest_ready: "2026-01-01T00:00:02Z" },
		{ key: "bob", tasks: 2, ready: 1, running: 1, owed: 0, oldest_ready: "2026-01-01T00:00:05Z" },
		{ key: "bob", tasks: 1, ready: 1, running: 0, owed: 0 },
	],
	unkeyed: { key: "", tasks: 5, ready: 4, running: 1, owed: 9, oldest_ready: "2026-01-01T00:00:09Z" },
};

it("puts the tasks without a key in their place", () => {
	const names = (sort: Parameters<typeof lanesOf>[1]) => lanesOf(answer, sort).map((l) => (l.unkeyed ? "none" : l.key));
	expect(names("backlog")).toEqual(["ann", "none", "bob", "bob"]);
	expect(names("oldest")).toEqual(["ann", "bob", "none", "bob"]);
	expect(names("owed")).toEqual(["none", "ann", "bob", "bob"]);
	expect(names("name")).toEqual(["none", "ann", "bob", "bob"]);
	expect(lanesOf({ ...answer, unkeyed: { key: "", tasks: 0 } }, "name")).toHaveLength(3);
	expect(new Set(lanesOf(answer, "name").map(laneId)).size).toBe(4);
	// A key may be empty in its looks, and is not the line without a key.
	expect(laneId({ key: "" })).not.toBe(laneId({ key: "", unkeyed: true }));
});

it("writes parts, and what is owed", () => {
	expect([part(undefined), part(0), part(0.004), part(0.335), part(1)]).toEqual(["–", "0 %", "< 1 %", "34 %", "100 %"]);
	expect([owedText(undefined), owedText(1200), owedText(-3)]).toEqual(["even", "1,200 behind", "3 ahead"]);
});

it("reads the settings of a key back as they were typed", () => {
	const s = { weight: 3, concurrency: 2, rate: { limit: 100, per: "1m", burst: 5 } };
	expect(keySettingsOf(keyFormOf(s))).toEqual(s);
	expect(keySettingsOf(keyFormOf(undefined))).toEqual({});
	expect(keyFormOf({ rate: { limit: 1, per: "3600s" } }).per).toBe("1h");
});

it("says what is wrong with the settings of a key", () => {
	const f = keyFormOf(undefined);
	expect(keyWrong(f)).toEqual({});
	expect(Object.keys(keyWrong({ ...f, weight: "1001", concurrency: "-1", limit: "5" }))).toEqual([
		"weight",
		"concurrency",
		"per",
	]);
	expect(Object.keys(keyWrong({ ...f, per: "1m" }))).toEqual(["limit"]);
	expect(Object.keys(keyWrong({ ...f, limit: "5", per: "soon" }))).toEqual(["per"]);
});

it("knows which keys an address can name", () => {
	expect(["a/b", "ä", " ", "", ".", ".."].map(addressable)).toEqual([true, true, true, false, false, false]);
});
