import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { effectOf } from "../src/effects.js";
import { Changes } from "../src/tx.js";
import { apply, type Fields } from "./effects.js";

const file = JSON.parse(readFileSync(new URL("../../../proto/conformance/effects.json", import.meta.url), "utf8")) as {
	effects: Fields[];
	batches: Fields[];
};

it("shows effects as the vectors that all languages share say", async () => {
	expect(file.effects.length).toBeGreaterThan(0);
	expect(file.batches.length).toBeGreaterThan(0);
	for (const want of [...file.effects, ...file.batches]) {
		const tx = new Changes();
		await apply(want, tx);
		expect(effectOf(tx.ops[0]!), JSON.stringify(want)).toEqual(want);
	}
});
