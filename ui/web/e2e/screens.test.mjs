import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fill } from "./fill.mjs";
import { accessible, closeBrowser, context, go, open, skip, wide } from "./rig.mjs";

after(closeBrowser);

test("every screen is accessible, and fits a telephone", { skip, timeout: 300_000 }, async (t) => {
	const { server: s, paths } = await fill(t);
	// What differs in the dark is colours, whose contrast has a test of its own.
	for (const colorScheme of /** @type {("light" | "dark")[]} */ (wide ? ["light", "dark"] : ["light"])) {
		const c = await context(t, { colorScheme });
		const page = await open(t, s, "", { context: c });
		for (const [name, path] of Object.entries(paths)) {
			await go(page, path);
			assert.equal(
				await page.locator(".failed").count(),
				0,
				`${name}: a part failed: ${await page.locator(".failed").allTextContents()}`,
			);
			await accessible(page, `${name}, ${colorScheme}`);
			if (colorScheme === "dark") continue;
			await page.setViewportSize({ width: 360, height: 740 });
			const more = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
			assert.ok(more <= 0, `${name}: ${more} pixels wider than a screen of 360`);
			await page.setViewportSize({ width: 1280, height: 800 });
		}
		await page.keyboard.press("?");
		await page.getByRole("dialog").waitFor();
		await accessible(page, `shortcuts, ${colorScheme}`);
	}
});
