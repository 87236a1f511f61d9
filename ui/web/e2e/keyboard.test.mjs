// Who has no mouse, sees forced colours, or reads at 200 %: the first tests of this file do not click.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, context, go, narrow, open, server, settled, skip, wide } from "./rig.mjs";

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
	await page.evaluate(() => {
		const draw = requestAnimationFrame;
		window.requestAnimationFrame = (f) => Number(setTimeout(() => draw(f), 500)); // keys come faster than the page is drawn
	});
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
	await page.locator("[role=menuitem]:focus").waitFor();
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

test("forced colours and a zoom of 200 % lose nothing", { skip: skip || narrow, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	await dead(s, 2);
	const id = await s.create("mail", {});
	await s.claim("mail");
	const every = [
		"overview",
		"queues",
		"queues/mail/settings",
		"tasks",
		`tasks/${id}`,
		`tasks/${id}/payload`,
		"dead",
		"workers",
		"kv",
		"search",
	];
	// Forms, a list, and a screen of several parts: the others are made of the same.
	const paths = wide ? every : ["overview", "queues/mail/settings", `tasks/${id}`, "search"];
	const forced = await open(t, s, "", { context: await context(t, { forcedColors: "active" }) });
	/** Whether what only a colour tells otherwise has a line around it. @param {string} selector */
	const lined = async (selector) => {
		const e = forced.locator(selector).first();
		await e.waitFor();
		const style = await e.evaluate((x) => getComputedStyle(x).outlineStyle);
		assert.equal(style, "solid", `${selector} looks like the others`);
	};
	await forced.goto(`${s.url}/ui/default/dead`);
	await lined(".rail a[aria-current]");
	await lined(".segments button[aria-pressed=true]");
	await forced.goto(`${s.url}/ui/default/tasks/${id}`);
	await lined(".tabs a[aria-current]");
	const bar = forced.locator(".lane-work").first();
	await bar.waitFor({ state: "attached" });
	const [own, ground] = await bar.evaluate((b) => [
		getComputedStyle(b).backgroundColor,
		getComputedStyle(/** @type {Element} */ (b.closest(".panel"))).backgroundColor,
	]);
	assert.notEqual(own, ground, "the bar of a try cannot be seen");
	await forced.goto(`${s.url}/ui/default/tasks`);
	await forced.locator("tbody tr[data-index]").first().waitFor();
	await forced.keyboard.press("j");
	await forced.keyboard.press("x");
	await lined("tr[aria-selected=true]");

	// At 200 % a window of 1280 pixels has 640. What can be pressed at 100 % is there too, and nothing lies beside the page.
	const page = await open(t, s, "", { context: await context(t, { deviceScaleFactor: 2 }) });
	for (const path of paths) {
		await page.setViewportSize({ width: 1280, height: 800 });
		await go(page, `default/${path}`);
		const names = () =>
			page
				.locator("main :is(button, input, select, textarea, summary):visible")
				.evaluateAll((all) => all.map((e) => (e.getAttribute("aria-label") ?? e.textContent ?? "").trim()).sort());
		const before = await names();
		await page.setViewportSize({ width: 640, height: 400 });
		await page.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth);
		// A page that is slow may draw a part once more.
		let gone = before;
		for (let i = 0; i < 100 && gone.length > 0; i++) {
			const now = await names();
			gone = before.filter((n) => !now.includes(n));
			if (gone.length > 0) await new Promise((done) => setTimeout(done, 50));
		}
		assert.deepEqual(gone, [], `${path}: gone at 200 %`);
	}
});

test("what failed, and what is empty, is accessible in both themes", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
		const c = await context(t, { colorScheme });
		const page = await open(t, s, "", { context: c, allowed: [400, 404, 503] });
		for (const path of [
			"overview",
			"queues",
			"tasks",
			"dead",
			"bulk",
			"batches",
			"workers",
			"limits",
			"kv",
			"repos",
			"search",
		]) {
			await page.goto(`${s.url}/ui/default/${path}`);
			await settled(page);
			await accessible(page, `${path}, empty, ${colorScheme}`);
		}
		for (const path of [
			"tasks/01KAJ0C7Q4G000000000000000",
			"queues/none",
			"kv/none",
			"repos/none",
			"bulk/none",
			"batches/none",
			"limits/none",
			"nothing/here",
		]) {
			await page.goto(`${s.url}/ui/default/${path}`);
			await settled(page);
			await accessible(page, `${path}, not there, ${colorScheme}`);
		}
		const error = { code: "UNAVAILABLE", message: "no leader", outcome: "unknown" };
		await page.route(
			/\/v1\/(queues|errors|tasks|workers|bulk|batches|limiters|keyspaces|repos|overview|cluster|collections|kv)/,
			(r) => r.fulfill({ status: 503, contentType: "application/json", body: JSON.stringify({ error }) }),
		);
		for (const path of [
			"default/queues/mail",
			"default/tasks",
			"default/dead",
			"default/kv",
			"default/repos",
			"default/bulk",
			"default/batches",
			"default/limits",
		]) {
			await page.goto(`${s.url}/ui/${path}`);
			await page.getByRole("alert").first().waitFor();
			await accessible(page, `${path}, failed, ${colorScheme}`);
		}
	}
});
