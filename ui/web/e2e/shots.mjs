// Writes a screenshot of every screen, in both themes and three widths, to the folder shots: for people to look at. Run it by
// scripts/ui.sh shots. The data is made by work of several kinds on a real server.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { fill } from "./fill.mjs";
import { closeBrowser, context, settled, tab } from "./rig.mjs";

/** @type {(() => unknown)[]} */
const ends = [];
const t = /** @type {any} */ ({ after: (/** @type {() => unknown} */ f) => ends.push(f) });
const out = resolve(import.meta.dirname, "../shots");
// SHOTS=light,1280 makes those alone.
const only = (process.env["SHOTS"] ?? "").split(",").filter(Boolean);
const themes = /** @type {("light" | "dark")[]} */ (
	["light", "dark"].filter((x) => !only.some((o) => /^[ld]/.test(o)) || only.includes(x))
);
const widths = [360, 1280, 2560].filter((x) => !only.some((o) => /^\d/.test(o)) || only.includes(String(x)));
mkdirSync(out, { recursive: true });
try {
	const { server: s, paths } = await fill(t);
	for (const colorScheme of themes) {
		for (const width of widths) {
			const c = await context(t, { colorScheme, viewport: { width, height: width === 360 ? 740 : 800 } });
			const page = await tab(t, c, [400, 401, 403, 404]);
			await page.goto(`${s.url}/ui/`);
			await page.getByLabel("Token").waitFor();
			await page.screenshot({ path: `${out}/sign-in-${width}-${colorScheme}.png` });
			await page.goto(await s.link());
			await page.locator(".live-live").waitFor();
			for (const [name, path] of Object.entries(paths)) {
				await page.goto(`${s.url}/ui/${path}`);
				await settled(page);
				await page.waitForTimeout(600); // for the first live figures, and for charts
				await page.screenshot({ path: `${out}/${name}-${width}-${colorScheme}.png` });
			}
			await page.goto(`${s.url}/ui/default/crons`);
			await page.getByRole("button", { name: "New cron…" }).click();
			await page.getByLabel("Schedule", { exact: true }).fill("30 2 * * *");
			await page.getByLabel("Zone").fill("Europe/Berlin");
			await page.getByRole("button", { name: "show that day" }).first().click();
			await page.getByRole("list", { name: /^Slots around/ }).waitFor();
			await page.screenshot({ path: `${out}/cron-new-${width}-${colorScheme}.png` });
			await page.goto(`${s.url}/ui/default/queues/deliver/limits`);
			await page.getByRole("row", { name: /^customer-9/ }).click();
			await page.getByRole("button", { name: "Set weight and limits…" }).click();
			await page.screenshot({ path: `${out}/queue-key-${width}-${colorScheme}.png` });
			await page.goto(`${s.url}/ui/default/overview`);
			await settled(page);
			await page.keyboard.press("?");
			await page.waitForTimeout(200);
			await page.screenshot({ path: `${out}/shortcuts-${width}-${colorScheme}.png` });
			await c.close();
		}
	}
} finally {
	await closeBrowser();
	for (const f of ends.reverse()) {
		try {
			await f();
		} catch (e) {
			console.error(String(e).slice(0, 2000));
		}
	}
}
