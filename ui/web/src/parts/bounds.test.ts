import { expect, it } from "vitest";
import { boundsFormOf, boundsOf, boundsWrong, rateText } from "./bounds";

it("writes rates", () => {
	expect(rateText({ limit: 600, per: "60s", burst: 50 })).toBe("600 per 1m, burst 50");
	expect(rateText({ limit: 1, per: "1s" })).toBe("1 per 1s");
	expect(rateText(undefined)).toBeUndefined();
});

it("reads bounds back as they were typed", () => {
	const b = { concurrency: 2, rate: { limit: 100, per: "1m", burst: 5 } };
	expect(boundsOf(boundsFormOf(b))).toEqual(b);
	expect(boundsOf(boundsFormOf(undefined))).toEqual({});
	expect(boundsOf({ concurrency: "0", limit: "", per: "", burst: "" })).toEqual({});
	expect(boundsFormOf({ rate: { limit: 1, per: "3600s" } }).per).toBe("1h");
});

it("says what is wrong with bounds before they are sent", () => {
	const f = boundsFormOf(undefined);
	expect(boundsWrong(f)).toEqual({});
	expect(boundsWrong({ ...f, concurrency: "-1" })).toEqual({ concurrency: "must be a whole number" });
	expect(boundsWrong({ ...f, limit: "5" })).toEqual({ per: "is required with a rate" });
	expect(boundsWrong({ ...f, burst: "5" })).toEqual({ limit: "is required with a rate" });
});
