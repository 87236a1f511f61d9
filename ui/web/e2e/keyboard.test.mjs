// The main ways through the pages by the keyboard alone: no test of this file clicks.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, open, server, settled, skip } from "./rig.mjs";

after(closeBrowser);

/** @param {import("./rig.mjs").Server} s @param {number} n */
async function dead(s, n) {
	for (let i = 0; i < n; i++) {
		const id = await s.create("mail", { n: i });
		const a = await s.claim("mail");
		await s.call("POST", `/v1/tasks/${id}/fail`, {
			token: a.token,
			fatal: true,
			error: { code: "SMTP", message: "550", stack: "mail.send" },
		});
	}
}

/** Presses Tab until what has the focus has this name. @param {import("playwright-core").Page} page @param {RegExp} name */
async function tabTo(page, name) {
	for (let i = 0; i < 80; i++) {
		await page.keyboard.press("Tab");
		const at = await page.evaluate(() => {
			const e = /** @type {HTMLElement} */ (document.activeElement);
			const seen = getComputedStyle(e).outlineStyle !== "none" || e.matches("dialog, body");
			const label =
				e.getAttribute("aria-label") ?? /** @type {any} */ (e).labels?.[0]?.textContent ?? e.textContent ?? "";
			return { label: label.trim(), seen, tag: e.tagName };
		});
		assert.ok(at.seen, `the focus on ${at.tag} ${at.label} cannot be seen`);
		if (name.test(at.label)) return;
	}
	assert.fail(`Tab does not lead to ${name}`);
}

test("find, read, mark, retry, redrive and pause by the keyboard alone", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	await dead(s, 4);
	const page = await open(t, s);
	const press = async (/** @type {string[]} */ ...keys) => {
		for (const k of keys) await page.keyboard.press(k);
	};
	// Find: the filter of the list of tasks.
	await press("g", "t");
	await page.getByRole("heading", { level: 1, name: "Tasks" }).waitFor();
	await page.locator("tbody tr[data-index]").nth(3).waitFor();
	await press("/");
	await page.keyboard.type("queue:mail state:dead ");
	await press("Enter");
	await page.waitForURL(/state:dead/);
	const rows = page.locator("tbody tr[data-index]");
	await rows.nth(3).waitFor();
	// Read: the newest task, its payload and back.
	await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement).blur());
	await press("j", "Enter");
	await page.waitForURL(/\/tasks\/[0-9A-Z]{26}$/);
	await page.getByRole("heading", { name: "Error of try 1" }).waitFor();
	await press("2");
	await page.waitForURL(/\/payload$/);
	await page.getByText('"n": 3').waitFor();
	// Retry it by its letter.
	await press("1");
	await page.getByRole("button", { name: "Retry" }).waitFor();
	await press("r");
	await page.getByRole("heading", { level: 1, name: /ready/ }).waitFor();
	assert.equal((await s.call("GET", "/v1/queues/mail/stats")).ready, 1);
	// Mark two of those that are left, and retry them.
	await press("u");
	await page.getByRole("heading", { level: 1, name: "Tasks" }).waitFor();
	await press("/");
	await page.keyboard.type("state:dead ");
	await press("Enter");
	await page.waitForURL(/q=state:dead/);
	await page.waitForFunction(() => document.querySelectorAll("tbody tr[data-index]").length === 3);
	await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement).blur());
	await press("j", "x", "j", "x");
	await page.getByText("2 selected").waitFor();
	await page.locator("#main").focus();
	await tabTo(page, /^Retry$/);
	await press("Enter");
	await page.getByText("2 retried").waitFor();
	assert.deepEqual(await s.call("GET", "/v1/queues/mail/stats").then((q) => [q.ready, q.dead]), [3, 1]);
	// Redrive what is left: its group, the count, and the job.
	await press("g", "d");
	await page.getByRole("heading", { level: 1, name: /Dead letters/ }).waitFor();
	await page.getByRole("row", { name: /SMTP 550/ }).waitFor();
	await press("j", "R");
	const dialog = page.getByRole("dialog");
	await dialog.getByText("1 task matches").waitFor();
	await tabTo(page, /to go on/);
	await page.keyboard.type("1");
	await tabTo(page, /^Redrive$/);
	await press("Enter");
	await dialog.getByText("1 / 1").waitFor();
	await press("Escape");
	await dialog.waitFor({ state: "detached" });
	assert.equal((await s.call("GET", "/v1/queues/mail/stats")).dead, 0);
	// Pause the queue, which is found by its name.
	await press("ControlOrMeta+k");
	await page.keyboard.type("mai");
	await page.getByRole("option", { name: /Queue mail/ }).waitFor();
	await press("Enter");
	await page.getByRole("heading", { level: 1, name: /mail/ }).waitFor();
	await page.locator("#main").focus();
	await tabTo(page, /^Pause/);
	await press("Enter");
	await page.getByRole("menuitem").first().waitFor();
	await press("ArrowDown", "ArrowDown", "Enter");
	await page
		.getByText(/paused by/)
		.first()
		.waitFor();
	const { paused } = await s.call("GET", "/v1/queues/mail/stats");
	assert.ok(paused.until, "the third of the menu has an end");
});

test("a dialog holds the focus, gives it back, and letters do nothing in it or in fields", {
	skip,
	timeout: 120_000,
}, async (t) => {
	const s = await server(t);
	const id = await s.create("mail", {});
	const page = await open(t, s, `default/tasks/${id}`);
	await page.getByRole("button", { name: "Cancel…" }).waitFor();
	/** @type {string[]} */
	const writes = [];
	page.on("request", (r) => r.method() !== "GET" && !r.url().endsWith(":get") && writes.push(r.url()));
	await page.locator("#main").focus();
	await tabTo(page, /^Cancel…$/);
	await page.keyboard.press("Enter");
	const dialog = page.getByRole("dialog");
	await dialog.waitFor();
	await page.keyboard.type("gqcr12?");
	assert.equal(await page.getByRole("dialog").count(), 1);
	for (let i = 0; i < 12; i++) {
		await page.keyboard.press("Tab");
		// The browser's own bar may have its turn: then it is the body.
		assert.ok(
			await page.evaluate(
				() => !document.activeElement?.closest("main, nav, header.bar") || !!document.activeElement.closest("dialog"),
			),
		);
	}
	await page.keyboard.press("Escape");
	await dialog.waitFor({ state: "detached" });
	assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Cancel…", "the focus comes back");

	// The default of a dialog is to keep things as they are.
	await s.call("POST", `/v1/tasks/${id}/cancel`, {});
	await page.getByRole("button", { name: "Delete…" }).waitFor();
	await page.locator("#main").focus();
	await tabTo(page, /^Delete…$/);
	await page.keyboard.press("Enter");
	await dialog.waitFor();
	assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Keep");
	await page.keyboard.press("Enter");
	await dialog.waitFor({ state: "detached" });

	await page.goto(`${s.url}/ui/default/tasks`);
	await settled(page);
	const field = page.getByRole("combobox", { name: "Filter" });
	await field.focus();
	await page.keyboard.type("gqxjke?/uoR ");
	assert.match(page.url(), /\/tasks$/);
	assert.equal(await field.inputValue(), "gqxjke?/uoR ");
	assert.equal(await page.getByText("1 selected").count(), 0);
	assert.deepEqual(writes, [], "nothing was sent");

	// Switched off, they do nothing at all; keys with Ctrl go on.
	await page.goto(`${s.url}/ui/settings`);
	await page.getByLabel("shortcuts of single letters").focus();
	await page.keyboard.press("Space");
	for (const path of [`default/tasks/${id}`, "default/tasks", "default/queues", "default/dead"]) {
		await page.goto(`${s.url}/ui/${path}`);
		await settled(page);
		for (const key of [..."gqtdwkjxeryYcuoR123456[]/?", " "]) await page.keyboard.press(key);
		assert.equal(page.url(), `${s.url}/ui/${path}`);
		assert.equal(await page.getByRole("dialog").count(), 0, path);
		assert.equal(await page.locator(".live-paused, [aria-selected=true]").count(), 0, path);
		assert.equal(await page.locator("input:focus").count(), 0, path);
	}
	assert.deepEqual(writes, []);
	await page.keyboard.press("ControlOrMeta+k");
	await page.getByRole("combobox", { name: "Queue, place, or id of a task" }).waitFor();
});
