import { expect, it } from "vitest";
import { licences } from "../licences.mjs";
import written from "./licences.json";

it("the licences that Settings shows are those of the packages that are built in", () => {
	expect(written, "run: npm run licences").toEqual(licences(new URL("../", import.meta.url)));
});

it("each package names its terms, and has their text", () => {
	for (const p of written.packages) {
		expect(p.licence, p.name).toBeTruthy();
		expect(written.texts[p.text]?.length, p.name).toBeGreaterThan(200);
	}
	expect(written.packages.map((p) => p.name)).toContain("react-dom");
});
