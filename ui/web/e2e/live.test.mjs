import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, context, made, open, server, skip, tab, tokensFile } from "./rig.mjs";

after(closeBrowser);

/** Counts the event streams that a page opens and ends. @param {import("playwright-core").Page} page @param {{ open: number }} count */
function streams(page, count) {
	const mine = new Set();
	page.on("request", (r) => {
		if (!r.url().includes("/v1/events")) return;
		mine.add(r);
		count.open++;
	});
	const end = (/** @type {import("playwright-core").Request} */ r) => {
		if (mine.delete(r)) count.open--;
	};
	page.on("requestfinished", end);
	page.on("requestfailed", end);
	page.on("close", () => {
		count.open -= mine.size;
		mine.clear();
	});
}

test("what changes on the server is seen, and eight tabs share one stream", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", { n: 1 });
	const c = await context(t);
	const count = { open: 0 };
	c.on("page", (p) => streams(p, count));
	const first = await open(t, s, "default/queues", { context: c });
	await first.getByRole("button", { name: /live/ }).and(first.locator(".live-live")).waitFor();
	const pages = [first];
	for (let i = 0; i < 7; i++) {
		const page = await tab(t, c);
		await page.goto(`${s.url}/ui/default/queues`);
		pages.push(page);
	}
	for (const page of pages) {
		await page.locator(".live-live").waitFor();
		await page.getByRole("row", { name: /mail/ }).waitFor();
	}
	assert.equal(count.open, 1, "streams of eight tabs");
	await s.create("later", { n: 2 });
	// The tab that reads is the first one. It goes, and another one takes its place.
	await pages.shift()?.close();
	await s.call("POST", "/v1/queues/mail:pause", { reason: "noon" });
	for (const page of pages) await page.getByRole("row", { name: /mail/ }).filter({ hasText: "paused" }).waitFor();
	assert.equal(count.open, 1, "streams after the reading tab was closed");
});

test("a hidden tab ends its stream, and goes on when it is seen again", { skip }, async (t) => {
	const s = await server(t);
	const count = { open: 0 };
	const c = await context(t);
	c.on("page", (p) => streams(p, count));
	const page = await tab(t, c);
	await page.clock.install();
	await page.goto(await s.link());
	await page.locator(".live-live").waitFor();
	const show = (/** @type {boolean} */ hidden) =>
		page.evaluate((h) => {
			Object.defineProperty(document, "hidden", { configurable: true, get: () => h });
			document.dispatchEvent(new Event("visibilitychange"));
		}, hidden);
	const ended = page.waitForEvent("requestfailed", (r) => r.url().includes("/v1/events"));
	await show(true);
	await page.clock.runFor(61_000);
	await ended;
	assert.equal(count.open, 0);
	const again = page.waitForRequest((r) => r.url().includes("/v1/events"));
	await show(false);
	await page.clock.runFor(1000);
	await again;
});

test("a page comes back by itself when the server does", { skip }, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "", { allowed: [502, 503] });
	await page.locator(".live-live").waitFor();
	await s.stop();
	await page.locator(".live-failing").waitFor();
	await s.start();
	await page.locator(".live-live").waitFor({ timeout: 60_000 });
});

test("a page goes on where what it draws charts with is not reached, and asks again", { skip }, async (t) => {
	const s = await server(t);
	const c = await context(t);
	await c.route("**/chart.js*", (r) => r.abort());
	const page = await open(t, s, "", { context: c });
	await page.getByText("The drawing is not loaded.").waitFor();
	await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
	await c.unroute("**/chart.js*");
	await page.locator(".plot canvas").waitFor();
});

test("a page of what is not there is live all the same", { skip }, async (t) => {
	const s = await server(t);
	const id = await s.create("mail", {});
	await s.call("POST", `/v1/tasks/${id}/cancel`, {});
	await s.call("DELETE", `/v1/tasks/${id}`);
	const page = await open(t, s, `default/tasks/${id}`, { allowed: [404] });
	await page.getByText(/^There is no task/).waitFor();
	await page.locator(".live-live").waitFor();
	const frame = page.waitForResponse((r) => r.url().includes("/v1/events"));
	await page.goto(`${s.url}/ui/default/queues`);
	assert.equal((await frame).status(), 200);
});

test("a token of some queues is told live of what is of these", { skip }, async (t) => {
	const ada = made("ada", "--role", "admin", "--scope", "task:work");
	const wim = made("wim", "--role", "admin", "--queue", "web*");
	const s = await server(t, "--tokens", tokensFile(t, [ada, wim]));
	s.token = ada.token;
	const id = await s.create("web", {});
	const batch = (await s.call("POST", "/v1/batches", { on_done: { queue: "web.done" } })).batch.id;
	// A list of tasks without a queue is not for it: the page of the batch says so.
	const page = await tab(t, await context(t), [401, 403]);
	/** @type {string[]} */
	const reads = [];
	page.on("request", (r) => void reads.push(new URL(r.url()).pathname));
	await page.goto(`${s.url}/ui/default/tasks/${id}`);
	await page.getByLabel("Token").fill(wim.token);
	// What is of all queues is refused by itself: the stream goes on with the task.
	const frame = page.waitForResponse((r) => r.url().includes("/v1/events") && r.url().includes(id));
	await page.getByRole("button", { name: "Sign in" }).click();
	assert.equal((await frame).status(), 200);
	await page.locator(".live-live").waitFor();
	const title = page.getByRole("heading", { level: 1 });
	await title.getByText("ready").waitFor();
	reads.length = 0;
	await s.call("POST", `/v1/tasks/${id}/cancel`, {});
	await title.getByText("cancelled").waitFor();
	// It is read once after it was told, and not before: nothing asks for it in between.
	assert.ok(reads.filter((p) => p === `/v1/tasks/${id}`).length <= 1, reads.join(", "));
	await page.goto(`${s.url}/ui/default/batches/${batch}`);
	await title.getByText("open").waitFor();
	await page.locator(".live-live").waitFor();
	await s.call("POST", `/v1/batches/${batch}:seal`);
	await title.getByText("finished").waitFor();
});
