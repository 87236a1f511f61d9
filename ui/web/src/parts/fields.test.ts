import { expect, it } from "vitest";
import { labelLines, localInput, readLabels } from "./fields";

it("writes labels as lines and reads them back", () => {
	const labels = { order: "7", "team/name": "a=b" };
	expect(readLabels(labelLines(labels))).toEqual({ labels });
	expect(readLabels("order=7\n\nno sign")).toEqual({ labels: { order: "7" }, wrong: "no sign" });
	expect(labelLines(undefined)).toBe("");
});

it("writes a time that a field reads as the same time", () => {
	expect(new Date(localInput("2026-03-29T01:00:05Z")).toISOString()).toBe("2026-03-29T01:00:05.000Z");
	expect(localInput(undefined)).toBe("");
});
