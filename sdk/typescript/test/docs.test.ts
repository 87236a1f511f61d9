// The code of the guide and of the README runs against a real server.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { Producer } from "../src/fetch.js";
import { type DevServer, devServer } from "../src/testing.js";

const binary = process.env.MILLRACE_BIN;
let server: DevServer;
beforeAll(async () => {
	if (binary) server = await devServer({ binary, http: true });
});
afterAll(() => server?.stop());

const dir = new URL("./.docs/", import.meta.url);

async function run(path: string): Promise<string[]> {
	const text = readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
	const blocks = [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((m) => m[1]!);
	expect(blocks.length).toBeGreaterThan(0);
	const imports: string[] = [];
	const code = blocks.join("\n").replace(/^import .*;\n/gm, (line) => {
		imports.push(
			line
				.replace('"millrace-sdk/testing"', '"../../src/testing.js"')
				.replace('"millrace-sdk"', '"../../src/index.js"'),
		);
		return "";
	});
	mkdirSync(dir, { recursive: true });
	const file = new URL(`${path.replaceAll("/", "_")}.ts`, dir);
	writeFileSync(file, imports.join("") + code);
	const lines: string[] = [];
	const log = vi.spyOn(console, "log").mockImplementation((...args) => void lines.push(args.map(String).join(" ")));
	vi.stubEnv("MILLRACE_URL", server.url);
	vi.stubEnv("MILLRACE_TOKEN", server.token);
	try {
		await import(file.href);
	} finally {
		log.mockRestore();
		vi.unstubAllEnvs();
		rmSync(dir, { recursive: true, force: true });
	}
	return lines;
}

it.skipIf(!binary)("runs the guide (skipped where MILLRACE_BIN names no server)", async () => {
	const lines = await run("docs/start/typescript.md");
	expect(lines[0]).toBe("https://example.com/a.png?w=300");
	expect(lines).toContain("PRECONDITION_FAILED 0 refused");
	expect(lines).toContain("dead fatal");
	expect(lines).toContain("complete u?w=300 3");
	expect(lines).toContain("HEADER_MISSING: webhook-id: the header is missing");
});

it.skipIf(!binary)("runs the page on crons (skipped where MILLRACE_BIN names no server)", async () => {
	expect(await run("docs/start/cron.md")).toEqual([
		"at 06:00 on Monday started",
		"weekly false 1",
		"1",
		"at 02:30 every day",
	]);
});

it.skipIf(!binary)("runs the page on limits (skipped where MILLRACE_BIN names no server)", async () => {
	expect(await run("docs/start/limits.md")).toEqual([
		"app 0 3 undefined",
		"web 0 1 their server is down",
		"30 0",
		"0 2 transcribe",
		"report: done hello!",
		"answered at attempt 2",
	]);
});

it.skipIf(!binary)("runs the page on batches (skipped where MILLRACE_BIN names no server)", async () => {
	expect(await run("docs/start/batches.md")).toEqual(["finished 2 true", "finished import"]);
});

it.skipIf(!binary)("runs the README (skipped where MILLRACE_BIN names no server)", async () => {
	expect(await run("sdk/typescript/README.md")).toEqual(["hello, ada"]);
});

it.skipIf(!binary)(
	"adds, commits, waits and reads over fetch (skipped where MILLRACE_BIN names no server)",
	async () => {
		const p = new Producer({ url: `http://${server.http}`, token: server.token });
		const o = { labels: { env: "test" }, headers: { a: "b" } };
		const a = await p.add("web", { n: 1 }, o);
		const again = await p.add("web", { n: 1 }, { ...o, id: a.id });
		expect(again).toEqual({ id: a.id, replayed: true });
		await p.commit([{ kv_put: { keyspace: "k", key: "a", value: "1" } }]);
		expect(Buffer.from((await p.get("k", "a"))!.bytes).toString()).toBe("1");
		expect(await p.get("k", "b")).toBeUndefined();
		await expect(p.wait(a.id, { timeout: 300 })).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
		await expect(p.add("not a queue", 1)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", outcome: "refused" });
	},
);
