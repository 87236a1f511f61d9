import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

// The example is a program of users: what it imports by name is this package and what is installed here.
export default defineConfig({
	// For a test that hangs. Those of a real server take seconds on a machine that does other things at the same time.
	test: { testTimeout: 60_000, hookTimeout: 60_000 },
	resolve: { alias: { "millrace-sdk": path("src/index.ts"), cheerio: path("node_modules/cheerio") } },
});
