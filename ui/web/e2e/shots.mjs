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
// SHOTS=light,1280,batches,batch-open makes those alone.
const only = (process.env["SHOTS"] ?? "").split(",").filter(Boolean);
const themes = /** @type {("light" | "dark")[]} */ (
	["light", "dark"].filter((x) => !only.some((o) => /^(light|dark)$/.test(o)) || only.includes(x))
);
const widths = [360, 1280, 2560].filter((x) => !only.some((o) => /^\d/.test(o)) || only.includes(String(x)));
const names = only.filter((o) => !/^(light|dark|\d+)$/.test(o));
/** Whether a screenshot of this name is wanted. @param {string} name */
const wanted = (name) => names.length === 0 || names.includes(name);
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
				if (!wanted(name)) continue;
				await page.goto(`${s.url}/ui/${path}`);
				await settled(page);
				await page.waitForTimeout(600); // for the first live figures, and for charts
				await page.screenshot({ path: `${out}/${name}-${width}-${colorScheme}.png` });
			}
			const button = (/** @type {string} */ name) => page.getByRole("button", { name }).first().click();
			/** Screens on which something is open. @type {[string, string, () => Promise<unknown>][]} */
			const opened = [
				[
					"cron-new",
					"default/crons",
					async () => {
						await button("New cron…");
						await page.getByLabel("Schedule", { exact: true }).fill("30 2 * * *");
						await page.getByLabel("Zone").fill("Europe/Berlin");
						await button("show that day");
						await page.getByRole("list", { name: /^Slots around/ }).waitFor();
					},
				],
				[
					"queue-key",
					"default/queues/deliver/limits",
					async () => {
						await page.getByRole("row", { name: /^customer-9/ }).click();
						await button("Set weight and limits…");
					},
				],
				[
					"limiter-change",
					"default/limits/openai",
					async () => {
						await button("Change…");
						await page.getByLabel("Cost at once").fill("8");
					},
				],
				[
					"batch-open",
					"default/batches",
					async () => {
						await button("Open a batch…");
						await page.getByLabel("Queue").first().fill("reports");
						await page.getByLabel("Payload, as JSON").first().fill('{"of": "import"');
					},
				],
				["batch-cancel", paths["batch"] ?? "", () => button("Cancel…")],
				["shortcuts", "default/overview", () => page.keyboard.press("?")],
			];
			for (const [name, path, act] of opened) {
				if (!wanted(name)) continue;
				await page.goto(`${s.url}/ui/${path}`);
				await settled(page);
				await act();
				await page.waitForTimeout(200);
				await page.screenshot({ path: `${out}/${name}-${width}-${colorScheme}.png` });
			}
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
