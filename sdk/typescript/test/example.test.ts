// The example of examples/typescript runs against a real server.
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { type DevServer, devServer } from "../src/testing.js";

const binary = process.env.MILLRACE_BIN;
let server: DevServer;
beforeAll(async () => {
	if (binary) server = await devServer({ binary });
});
afterAll(() => server?.stop());

it.skipIf(!binary)(
	"fetches a site, stores its pages and follows its links (skipped where MILLRACE_BIN names no server)",
	async () => {
		vi.stubEnv("MILLRACE_URL", server.url);
		vi.stubEnv("MILLRACE_TOKEN", server.token);
		const argv = process.argv;
		process.argv = argv.slice(0, 2);
		const lines: string[] = [];
		const log = vi.spyOn(console, "log").mockImplementation((...args) => void lines.push(args.map(String).join(" ")));
		try {
			await import(new URL("../../../examples/typescript/pages.mts", import.meta.url).href);
		} finally {
			log.mockRestore();
			process.argv = argv;
			vi.unstubAllEnvs();
		}
		expect(lines[0]).toBe("first page: Page /");
		expect(lines[1]).toBe("4 pages stored, 1 not found");
		expect(lines.filter((l) => /^http.* Page \//.test(l)).length).toBe(4);
	},
);
