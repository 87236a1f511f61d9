import { expect, test } from "vitest";
import { headline, placeOf, wordOf } from "./attention";

const dead = { kind: "dead_rising", object: "mail", count: 4, text: "4 tasks died." };

test("what is spoken is the newest harm, and how many more there are", () => {
	expect(headline([], 3)).toBe("Nothing needs you, 3.0/s completed.");
	expect(headline([dead], 3)).toBe("mail: 4 tasks died.");
	expect(headline([dead, dead, dead], undefined)).toBe("mail: 4 tasks died, and 2 more.");
});

test("each kind leads to where one looks on, and a kind of a later server has its own name", () => {
	expect(placeOf(dead, "default")).toEqual({
		name: "Dead letters",
		link: { to: "/$ns/dead", params: { ns: "default" }, search: { queue: "mail" } },
	});
	expect(placeOf({ kind: "node_down", object: "n2" }, "default")!.link).toEqual({ to: "/cluster" });
	expect(placeOf({ kind: "new_harm", object: "x" }, "default")).toBeUndefined();
	expect(wordOf("new_harm").word).toBe("new harm");
});
