import { defineConfig } from "tsdown";

// The agent of the scenario suite, as one file that node runs.
export default defineConfig({
	entry: { agent: "test/agent.ts" },
	outDir: "test-dist",
	format: ["esm"],
	dts: false,
	platform: "node",
	target: "node20",
	clean: false, // tests of Go may walk the folder
});
