import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["src/**/*.test.{ts,tsx}"], setupFiles: ["src/test-place.ts"] } });
