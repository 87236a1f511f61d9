import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The names of the built files do not change, so that each is one file in the repository's history. The server adds ?v= to them.
export default defineConfig({
	base: "/ui/",
	plugins: [react()],
	build: {
		outDir: "../dist",
		emptyOutDir: true,
		target: "es2023",
		modulePreload: false,
		cssCodeSplit: false,
		assetsInlineLimit: 0,
		reportCompressedSize: false,
		rollupOptions: {
			output: {
				entryFileNames: "app.js",
				chunkFileNames: (c) =>
					c.name === "screens" || c.facadeModuleId?.includes("screens/index")
						? "pages.js"
						: c.name === "chart-plot"
							? "chart.js"
							: "[name].js",
				assetFileNames: "app[extname]",
			},
		},
	},
});
