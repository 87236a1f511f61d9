import { expect, it } from "vitest";
import { ink } from "./label";

it("a label is written so that it can be read on its colour", () => {
	expect(ink("#7a4b00")).toBe("white");
	expect(ink("#ff0000")).toBe("black");
	expect(ink("#ffee00")).toBe("black");
	expect(ink("#000080")).toBe("white");
	expect(ink("#ffffff")).toBe("black");
});
