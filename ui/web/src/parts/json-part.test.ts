import { expect, it } from "vitest";
import { partOf } from "./json-part";

const text = `{ "a" : [1, {"payload": 0}], "s": "} \\" {", "template" : {"queue":"q","payload": {"n":9007199254740993, "b":[ -0 ,1e400], "t":"\\u0041"} } ,"z":null}`;

it("cuts a member out as it was written", () => {
	expect(partOf(text, ["template", "payload"])).toBe('{"n":9007199254740993, "b":[ -0 ,1e400], "t":"\\u0041"}');
	expect(partOf(text, ["template", "queue"])).toBe('"q"');
	expect(partOf(text, ["s"])).toBe('"} \\" {"');
	expect(partOf(text, ["z"])).toBe("null");
	expect(partOf('{"n":12}', ["n"])).toBe("12");
	expect(partOf(" [1] ", [])).toBe("[1]");
});

it("finds nothing where nothing is", () => {
	expect(partOf(text, ["payload"])).toBeUndefined();
	expect(partOf(text, ["template", "kind"])).toBeUndefined();
	expect(partOf(text, ["z", "x"])).toBeUndefined();
	expect(partOf("{}", ["a"])).toBeUndefined();
	expect(partOf("[]", ["a"])).toBeUndefined();
});

it("knows a name however it is escaped", () => {
	expect(partOf('{"\\u0061":true}', ["a"])).toBe("true");
});
