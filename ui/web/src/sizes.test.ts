import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";

const dist = resolve(import.meta.dirname, "../../dist");
const names = readdirSync(dist);
const raw = (name: string) => readFileSync(resolve(dist, name)).length;
const packed = (name: string) => gzipSync(readFileSync(resolve(dist, name)), { level: 9 }).length;
const sum = (list: string[], size: (name: string) => number) => list.reduce((n, name) => n + size(name), 0);

it("keeps the built files small", () => {
	expect(names.sort()).toEqual(["app.css", "app.js", "chart.js", "index.html", "pages.js"]);
	expect(packed("app.js")).toBeLessThanOrEqual(130 * 1024);
	expect(
		sum(
			names.filter((n) => n.endsWith(".js")),
			packed,
		),
	).toBeLessThanOrEqual(320 * 1024);
	expect(packed("app.css")).toBeLessThanOrEqual(20 * 1024);
	expect(sum(names, raw)).toBeLessThanOrEqual(1.2 * 1024 * 1024);
});
