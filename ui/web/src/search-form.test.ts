import { describe, expect, it } from "vitest";
import { formOf, marked, only, requestOf, whyNot } from "./search-form";

const form = (f: Record<string, string>) => formOf({ collection: "people", text: "welder", ...f });

describe("the request of a form", () => {
	it("has what was given and nothing else", () => {
		expect(requestOf(form({}), "", "")).toEqual({
			request: { collection: "people", query_text: "welder", explain: true },
		});
		expect(
			requestOf(
				form({
					k: "5",
					roles: "welder, painter",
					filter: "years > 3",
					params: '{"at":[1,2]}',
					ruleset: "safety@4",
					dense: "0.9",
					exact: "1",
					explain: "0",
				}),
				"",
				"",
			),
		).toEqual({
			request: {
				collection: "people",
				query_text: "welder",
				k: 5,
				gate: { roles: ["welder", "painter"], filter: "years > 3", params: { at: [1, 2] } },
				judge: { ruleset: "safety@4" },
				merge: { dense: 0.9 },
				exact: true,
			},
		});
	});
	it("takes a vector in place of a text, with its model", () => {
		expect(requestOf(form({ text: "" }), "0.5, 1", "m")).toEqual({
			request: { collection: "people", vector: [0.5, 1], model: "m", explain: true },
		});
		expect(requestOf(form({}), "[1]", "")).toEqual({
			fault: { field: "vector", text: "needs the id of the model that made it" },
		});
		expect(requestOf(form({}), '["a"]', "m")).toMatchObject({ fault: { field: "vector" } });
	});
	it("names the field that is wrong", () => {
		expect(requestOf(form({ k: "many" }), "", "")).toEqual({ fault: { field: "k", text: "must be a number" } });
		expect(requestOf(form({ params: "[1]" }), "", "")).toEqual({
			fault: { field: "params", text: "must be a JSON object" },
		});
		expect(requestOf(form({ text: "" }), "", "")).toMatchObject({ fault: { field: "text" } });
		expect(requestOf(form({ collection: "" }), "", "")).toMatchObject({ fault: { field: "collection" } });
	});
});

describe("why an id is not here", () => {
	const r = { collection: "c", query_text: "x", merge: { min_score: 0.5 }, gate: { roles: ["a"] } };
	const gate = (b: object, passed = 0) => ({
		gate: { considered: 9, passed, blocked_by: { ids: 8, ...b } },
		results: [],
	});
	it("asks the same search about it alone", () => {
		expect(only(r, "w1")).toMatchObject({ gate: { roles: ["a"], ids_in: ["w1"] }, merge: {} });
		expect(only(r, "w1").merge).not.toHaveProperty("min_score");
	});
	it("reads the counts of the answer", () => {
		expect(whyNot(r, "w1", {}, gate({ role: 1 }))).toContain("roles");
		expect(whyNot(r, "w1", {}, gate({ filter: 1 }))).toContain("filter");
		expect(whyNot(r, "w1", {}, gate({ ids: 9 }))).toContain("no such point");
		expect(whyNot(r, "w1", {}, { ...gate({}, 1), judge: { blocked: 1, ruleset: "s@1" } })).toContain("s@1 blocks");
		const scored = { ...gate({}, 1), results: [{ id: "w1", score: 0.4 }] };
		expect(whyNot(r, "w1", {}, scored)).toContain("below min_score 0.5");
		expect(whyNot({ ...r, merge: {} }, "w1", { results: [{ id: "w2", score: 0.9 }] }, scored)).toContain("0.900000");
		expect(whyNot({ ...r, gate: { ids_not_in: ["w1"] } }, "w1", {}, {})).toContain("left out");
	});
});

describe("a fault in an expression", () => {
	it("is marked by line and column, also behind characters of several units", () => {
		expect(marked("years >> 1", 1, 8)).toEqual({ before: "years >", at: ">", after: " 1" });
		expect(marked("a\n'😀' > b", 2, 7)).toEqual({ before: "a\n'😀' > ", at: "b", after: "" });
		expect(marked("a", 1, 2)).toEqual({ before: "a", at: " ", after: "" });
		expect(marked("a\nb", 9, 9)).toEqual({ before: "a\nb", at: " ", after: "" });
	});
});
