// The limits of a queue, and its keys: what is used, who gets what, and what each line waits for.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, context, narrow, open, server, settled, skip } from "./rig.mjs";

after(closeBrowser);

/** A queue whose keys wait for different things. @param {import("./rig.mjs").Server} s */
async function shared(s) {
	await s.call("PUT", "/v1/queues/build", {
		concurrency: 4,
		per_key: { concurrency: 1 },
		rate: { limit: 600, per: "1m", burst: 50 },
		max_workers: 3,
	});
	/** @type {Record<string, string[]>} */
	const ids = { ann: [], bob: [], "": [] };
	for (const [key, n] of /** @type {[string, number][]} */ ([
		["ann", 3],
		["bob", 2],
		["", 1],
	]))
		for (let i = 0; i < n; i++) ids[key]?.push(await s.create("build", {}, key ? { key } : {}));
	for (let i = 0; i < 3; i++) await s.claim("build");
	return ids;
}

test("the table of keys says what runs, what is due and who holds up what, and a weight is set", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const ids = await shared(s);
	const page = await open(t, s, "default/queues/build");
	await page.getByRole("link", { name: "Limits & keys" }).click();
	await page.getByText("3 / 4").waitFor();
	await page.getByText("600 per 1m, burst 50").waitFor();
	await page.getByTitle("1 of 3 workers have tasks").waitFor();
	await page.getByText("2 lines have tasks ready").waitFor();
	await page.getByText("2 held up").waitFor();
	const row = (/** @type {RegExp} */ name) => page.getByRole("row", { name });
	await row(/^ann/).getByText("1 / 1").waitFor();
	await row(/^ann/).getByText("33 % / 50 %").waitFor();
	await row(/^ann/).getByText("its limit of 1").waitFor();
	await row(/^ann/)
		.getByRole("link", { name: `…${ids["ann"]?.[0]?.slice(-6)}` })
		.waitFor();
	await row(/^\(no key\)/).waitFor();
	await accessible(page, "limits");

	// By the keyboard alone: the row of ann, what is set for it, its weight.
	await page.keyboard.press("j");
	await page.keyboard.press("Enter");
	await page.getByRole("button", { name: "Set weight and limits…" }).focus();
	await page.keyboard.press("Enter");
	const dialog = page.getByRole("dialog");
	await dialog.getByLabel("Weight").fill("1001");
	assert.ok(await dialog.getByRole("button", { name: "Set", exact: true }).isDisabled());
	await dialog.getByLabel("Weight").fill("3");
	await dialog.getByLabel("Tasks at once").fill("2");
	await dialog.getByRole("row", { name: /weight 1 3/ }).waitFor();
	await accessible(page, "the dialog of a key");
	await dialog.getByRole("button", { name: "Set", exact: true }).click();
	await dialog.waitFor({ state: "detached" });
	await row(/^ann/).getByText("33 % / 75 %").waitFor();
	await row(/^ann/).getByText("1 / 2").waitFor();
	const { keys } = await s.call("GET", "/v1/queues/build/keys?sort=backlog");
	assert.deepEqual(keys[0].settings, { weight: 3, concurrency: 2 });

	// A key is paused with a reason, and goes on.
	await page.getByRole("button", { name: "Pause with a reason…" }).click();
	await dialog.getByLabel(/Reason/).fill("their server is down");
	await dialog.getByRole("button", { name: "Pause", exact: true }).click();
	await row(/^ann/).getByText("their server is down").waitFor();
	await page.getByRole("button", { name: "Resume", exact: true }).click();
	await page.getByText("Key ann goes on.").waitFor();
	await row(/^ann/).getByText("its turn").waitFor();
	await page.getByRole("button", { name: "Undo" }).click();
	await row(/^ann/).getByText("paused").first().waitFor();

	// Another order is in the address.
	await page.getByRole("button", { name: "oldest" }).click();
	await page.waitForURL(/sort=oldest/);
	await page.getByLabel("Key begins with").fill("bo");
	await row(/^ann/).waitFor({ state: "detached" });
	await row(/^bob/).waitFor();
	// A key that is not in the list yet.
	await page.getByRole("button", { name: "Set a key…" }).click();
	await dialog.getByLabel("Key", { exact: true }).fill("bo/new");
	await dialog.getByLabel("Rate: how much").fill("10");
	assert.ok(await dialog.getByRole("button", { name: "Set", exact: true }).isDisabled(), "a rate needs a time");
	await dialog.getByLabel("Rate: in each").fill("1m");
	await dialog.getByRole("button", { name: "Set", exact: true }).click();
	await page.getByRole("button", { name: "1 newer, show" }).click();
	await row(/^bo\/new/).waitFor();
});

test("rows stay where they are until they are sorted again", { skip }, async (t) => {
	const s = await server(t);
	for (const [key, n] of /** @type {[string, number][]} */ ([
		["ann", 2],
		["bob", 1],
	]))
		for (let i = 0; i < n; i++) await s.create("q", {}, { key });
	const page = await open(t, s, "default/queues/q/limits");
	const names = () => page.locator(".grid tbody th").allInnerTexts();
	await page.getByRole("row", { name: /^ann 2/ }).waitFor();
	assert.deepEqual(await names(), ["ann", "bob"]);
	for (let i = 0; i < 3; i++) await s.create("q", {}, { key: "bob" });
	await page.getByRole("row", { name: /^bob 4/ }).waitFor();
	assert.deepEqual(await names(), ["ann", "bob"], "cells change, rows stay");
	await page.getByRole("button", { name: "sort again" }).click();
	await page.locator(".grid tbody th").first().getByText("bob").waitFor();
});

test("the limits of a queue are edited where they are shown", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	await s.call("PUT", "/v1/queues/mail", { max_attempts: 3, dead_letter: "letters" });
	const page = await open(t, s, "default/queues/mail/limits");
	await page.getByText("1 task, no bound").or(page.getByText("0 tasks, no bound")).waitFor();
	await page.getByRole("button", { name: "Edit…" }).click();
	const outer = page.getByRole("dialog", { name: "Limits of mail" });
	await outer.getByLabel("tasks at once").first().fill("5");
	await outer.getByLabel("order").selectOption("strict");
	assert.equal(await outer.getByLabel("failures").count(), 0, "only limits are there");
	await accessible(page, "the dialog of limits");
	await outer.getByRole("button", { name: "Review 2 changes…" }).click();
	const inner = page.getByRole("dialog", { name: /Change the settings/ });
	await page.keyboard.press("Escape");
	await inner.waitFor({ state: "detached" });
	await outer.getByRole("button", { name: "Review 2 changes…" }).click();
	await inner.getByRole("button", { name: "Change" }).click();
	await outer.waitFor({ state: "detached" });
	await page.getByText("0 / 5").waitFor();
	await page.getByText("strict: one of a key at a time").waitFor();
	const now = await s.call("GET", "/v1/queues/mail");
	assert.deepEqual(
		[now.concurrency, now.order, now.max_attempts, now.dead_letter],
		[5, "strict", 3, "letters"],
		"what the dialog does not show stays",
	);
});

test("where the namespace has several partitions, it is said which of them a limit holds for", { skip }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/namespace?ns=wide", { partitions: 3 });
	await s.call("PUT", "/v1/queues/build?ns=wide", { concurrency: 4 });
	await s.call("PUT", "/v1/queues/mail?ns=wide", { per_key: { concurrency: 1 } });
	await s.call("PUT", "/v1/limiters/api?ns=wide", { concurrency: 2 });
	const page = await open(t, s, "wide/queues/build/limits");
	await page.getByText("the namespace: its tasks are in partition 0").waitFor();
	// What the server says of a configuration is not sent back with a change.
	await page.getByRole("button", { name: "Edit…" }).click();
	const outer = page.getByRole("dialog", { name: "Limits of build" });
	await outer.getByLabel("limiters").fill("api");
	await outer.getByRole("button", { name: "Review 1 change…" }).click();
	const sent = page.waitForRequest((r) => r.method() === "PUT");
	await page
		.getByRole("dialog", { name: /Change the settings/ })
		.getByRole("button", { name: "Change" })
		.click();
	const body = (await sent).postDataJSON();
	assert.deepEqual([body.concurrency, body.limiters, "pinned" in body], [4, ["api"], false]);
	await outer.waitFor({ state: "detached" });
	await page.goto(`${s.url}/ui/wide/queues/mail/limits`);
	await page.getByText("each of 3 partitions").waitFor();
	await page.goto(`${s.url}/ui/wide/limits/api`);
	await page.getByText("0 / 6").waitFor();
	await page.getByText("2 in each partition").waitFor();
});

test("limits are accessible and fit a telephone, in both themes", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await shared(s);
	for (const colorScheme of /** @type {("light" | "dark")[]} */ (["light", "dark"])) {
		const page = await open(t, s, "default/queues/build/limits", { context: await context(t, { colorScheme }) });
		await settled(page);
		await page.getByRole("row", { name: /^ann/ }).click();
		await page.getByRole("button", { name: "Set weight and limits…" }).waitFor();
		await accessible(page, `limits, ${colorScheme}`);
		await page.setViewportSize({ width: 360, height: 740 });
		const more = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
		assert.ok(more <= 0, `limits: ${more} pixels wider than a screen of 360`);
	}
});
