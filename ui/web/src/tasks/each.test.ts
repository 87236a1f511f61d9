import { expect, test } from "vitest";
import { ApiError } from "../api/errors";
import { each, told } from "./each";

test("what became of each is counted", async () => {
	let at = 0;
	let most = 0;
	const o = await each(["a", "b", "c", "d", "e", "f"], async (id) => {
		most = Math.max(most, ++at);
		await Promise.resolve();
		at--;
		if (id === "b" || id === "e") throw new ApiError(409, { code: "WRONG_STATE", outcome: "refused" });
		if (id === "c") throw new TypeError("no answer");
	});
	expect(o).toEqual({ done: 3, refused: new Map([["WRONG_STATE", 2]]), unknown: ["c"] });
	expect(most).toBeLessThanOrEqual(4);
	expect(told(o, "retried")).toBe("3 retried, 2 refused (WRONG_STATE), 1 may have been");
});
