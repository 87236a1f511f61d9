import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ask, staleOf, tellUnled } from "./stale";

/** What a route has of parameters in the OpenAPI document. */
interface Operation {
	parameters?: { name?: string; $ref?: string }[];
}
const document = JSON.parse(readFileSync("../../gen/openapi/millrace.v1.json", "utf8")) as {
	paths: Record<string, { get?: Operation }>;
};

describe("a read where no node leads", () => {
	it("is asked of what the node has, exactly where the contract has that", () => {
		const asked: string[] = [];
		const has: string[] = [];
		for (const [path, { get }] of Object.entries(document.paths)) {
			if (!get) continue;
			if (staleOf(`https://node${path.replace(/\{[^}]*\}/g, "x")}`)) asked.push(path);
			if (get.parameters?.some((p) => p.name === "consistency" || p.$ref?.endsWith("/consistency"))) has.push(path);
		}
		expect(asked).toEqual(has);
		expect(has.length).toBeGreaterThan(30);
	});

	it("keeps its other parameters, and is asked so once", () => {
		expect(staleOf("https://node/v1/tasks?ns=a&min_index=7&limit=2")).toBe(
			"https://node/v1/tasks?ns=a&limit=2&consistency=stale",
		);
		expect(staleOf("https://node/v1/tasks/1?min_index=7")).toBe("https://node/v1/tasks/1?consistency=stale");
		expect(staleOf("https://node/v1/tasks?consistency=stale")).toBeUndefined();
	});

	afterEach(() => {
		tellUnled(false);
		vi.unstubAllGlobals();
		vi.useRealTimers();
	});

	/** A node that answers no read but those of what it has; it says so at once, or never. Returns what it was asked. */
	function node(silent: boolean): string[] {
		const asked: string[] = [];
		vi.stubGlobal("fetch", (request: Request, init?: RequestInit) => {
			const { pathname, search } = new URL(request.url, "http://localhost");
			asked.push(pathname + search);
			if (search.includes("consistency=stale")) return Promise.resolve(new Response("{}"));
			if (!silent)
				return Promise.resolve(Response.json({ error: { code: "UNAVAILABLE", reason: "no_leader" } }, { status: 503 }));
			return new Promise((_, refuse) => {
				init?.signal?.addEventListener("abort", () => refuse(init.signal?.reason));
			});
		});
		return asked;
	}

	it("is answered with what the node has once the node says that none leads", async () => {
		const asked = node(false);
		expect((await ask(new Request("http://localhost/v1/tasks?ns=a"))).status).toBe(200);
		expect(asked).toEqual(["/v1/tasks?ns=a", "/v1/tasks?ns=a&consistency=stale"]);
		expect((await ask(new Request("http://localhost/v1/tasks?ns=a", { method: "POST" }))).status).toBe(503);
	});

	it.each([true, false])("does not wait for the node where that is known, before the read: %s", async (before) => {
		vi.useFakeTimers();
		const asked = node(true);
		tellUnled(before);
		const answer = ask(new Request("http://localhost/v1/tasks?ns=a"));
		tellUnled(true);
		await vi.advanceTimersByTimeAsync(1000);
		expect((await answer).status).toBe(200);
		expect(asked).toEqual(["/v1/tasks?ns=a", "/v1/tasks?ns=a&consistency=stale"]);
	});

	it("ends with the page that asked", async () => {
		node(true);
		tellUnled(true);
		const page = new AbortController();
		const answer = ask(new Request("http://localhost/v1/tasks", { signal: page.signal }));
		page.abort(new Error("left"));
		await expect(answer).rejects.toThrow();
	});
});
