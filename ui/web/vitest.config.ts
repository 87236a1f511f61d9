import { defineConfig } from "vitest/config";

export default defineConfig({
	test: {
		include: ["src/**/*.test.{ts,tsx}"],
		setupFiles: ["src/test-place.ts"],
		// For a test that hangs, also on a machine that does other things at the same time.
		testTimeout: 60_000,
		hookTimeout: 60_000,
	},
});
