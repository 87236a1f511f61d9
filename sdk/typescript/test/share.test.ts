import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { divide, newShare, roam, type Share } from "../src/core/share.js";

interface Vector {
	call: "divide" | "roam";
	total: number;
	now: number;
	streams: Partial<Share>[];
	after: Partial<Share>[];
}

const file = new URL("../../../proto/conformance/share.json", import.meta.url);
const { vectors } = JSON.parse(readFileSync(file, "utf8")) as { vectors: Vector[] };

it.each(vectors.map((v, i) => [i, v] as const))("slots are divided as vector %i says", (_, v) => {
	const streams = v.streams.map((s) => ({ ...newShare(0), ...s }));
	if (v.call === "divide") divide(v.total, streams, v.now);
	else roam(v.total, streams, v.now);
	expect(streams.map(({ hot: _, ...s }) => s)).toEqual(v.after);
});
