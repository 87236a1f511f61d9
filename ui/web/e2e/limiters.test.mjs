// Limiters, which several queues share, and the bounds of the namespace and the tenant.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import {
	accessible,
	closeBrowser,
	context,
	go,
	made,
	narrow,
	open,
	server,
	settled,
	skip,
	tab,
	tokensFile,
} from "./rig.mjs";

after(closeBrowser);

const end = (/** @type {string} */ id) => `…${id.slice(-6)}`;

test("a limiter is made, says who holds it, is named by a queue, changed, and removed once nothing names it", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "default/limits", { allowed: [404, 409] });
	await page.getByText("There is none yet").waitFor();
	await accessible(page, "no limiters");
	await page.getByRole("button", { name: "New limiter…" }).click();
	const dialog = page.getByRole("dialog");
	const make = dialog.getByRole("button", { name: "Make" });
	await dialog.getByLabel("Name", { exact: true }).fill("-api");
	await dialog.getByText("must be letters").waitFor();
	assert.ok(await make.isDisabled(), "a name begins with a letter or a digit");
	await dialog.getByLabel("Name", { exact: true }).fill("api");
	await dialog.getByLabel("Rate: how much").fill("5");
	await dialog.getByText("is required with a rate").waitFor();
	assert.ok(await make.isDisabled(), "a rate needs a time");
	await dialog.getByLabel("Rate: how much").fill("");
	await dialog.getByLabel("Cost at once").fill("2");
	await accessible(page, "the dialog of a limiter");
	await make.click();
	await page.waitForURL(/\/limits\/api/);
	const title = page.getByRole("heading", { level: 1 });
	await title.getByText("has room").waitFor();
	await page.getByText("No running task holds it.").waitFor();

	// Tasks of two queues share it: what happens is seen without that anybody asks.
	/** @type {Record<string, any>} */
	const held = {};
	for (const queue of ["summary", "chat"]) {
		await s.create(queue, {}, { limiters: ["api"] });
		held[queue] = await s.claim(queue);
	}
	const waits = await s.create("chat", {}, { limiters: ["api"] });
	await title.getByText("is full").waitFor();
	await page.getByText("2 / 2").waitFor();
	const holders = page.getByRole("region", { name: "Who holds it" });
	for (const [queue, a] of Object.entries(held)) {
		const line = holders.getByRole("listitem").filter({ hasText: queue });
		await line.getByRole("link", { name: end(a.id) }).waitFor();
		await line.getByRole("link", { name: queue }).waitFor();
	}
	await accessible(page, "a limiter");

	// A task that waits for it leads here, and so does a queue that names it.
	await page.goto(`${s.url}/ui/default/tasks/${waits}`);
	const why = page.locator(".why li").filter({ has: page.getByText("limiter", { exact: true }) });
	await why.getByRole("link", { name: end(held["chat"].id) }).waitFor();
	await why.getByRole("link", { name: "api" }).click();
	await page.waitForURL(/\/limits\/api/);
	await s.call("PUT", "/v1/queues/transcribe", { max_attempts: 3 });
	await page.goto(`${s.url}/ui/default/queues/transcribe/settings`);
	const review = page.getByRole("button", { name: /^Review/ });
	await page.getByLabel("limiters").fill("a, b, c, d, e");
	await page.getByText("must be at most 4 names").waitFor();
	assert.ok(await review.isDisabled(), "a mistake is not sent");
	await page.getByLabel("limiters").fill("nothing-there");
	await review.click();
	await dialog.getByRole("button", { name: "Change" }).click();
	await dialog.getByText("Nothing was changed.").waitFor();
	await dialog.getByText(/"nothing-there" not found/).waitFor();
	await dialog.getByRole("button", { name: "Keep" }).click();
	await page.getByLabel("limiters").fill("api");
	await page.getByLabel("dead letters to").fill("letters");
	await page.getByRole("button", { name: "Review 2 changes…" }).click();
	await dialog.getByRole("row", { name: /limiters default api/ }).waitFor();
	await dialog.getByRole("button", { name: "Change" }).click();
	await dialog.waitFor({ state: "detached" });
	const now = await s.call("GET", "/v1/queues/transcribe");
	assert.deepEqual([now.limiters, now.dead_letter, now.max_attempts], [["api"], "letters", 3]);
	await page.getByRole("link", { name: "letters", exact: true }).waitFor();
	await page.getByRole("main").getByRole("link", { name: "api" }).click();
	await page.getByRole("region", { name: "Queues that name it" }).getByRole("link", { name: "transcribe" }).click();
	await page.waitForURL(/queues\/transcribe\/limits/);
	await page.getByRole("link", { name: "api" }).click();

	// What is named is not removed; what bounds nothing holds nothing up.
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "Delete…" }).click();
	await dialog.getByText(/3 tasks that have not ended and 1 queue: transcribe/).waitFor();
	await accessible(page, "the dialog that removes a limiter");
	await dialog.getByRole("button", { name: "Delete the limiter" }).click();
	await dialog.getByText("Nothing was changed.").waitFor();
	await dialog.getByRole("button", { name: "Keep" }).click();
	await page.getByRole("button", { name: "Change…" }).click();
	assert.ok(await dialog.getByRole("button", { name: "Save" }).isDisabled(), "nothing is changed yet");
	await dialog.getByLabel("Cost at once").fill("");
	await dialog.getByRole("row", { name: "2 at once nothing" }).waitFor();
	await dialog.getByRole("button", { name: "Save" }).click();
	await title.getByText("bounds nothing").waitFor();
	const third = await s.claim("chat");
	assert.equal(third.id, waits);

	for (const a of [...Object.values(held), third])
		await s.call("POST", `/v1/tasks/${a.id}/complete`, { token: a.token });
	await s.call("PUT", "/v1/queues/transcribe", {});
	await page.getByText("No running task holds it.").waitFor();
	await page.reload();
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "Delete…" }).click();
	await dialog.getByRole("button", { name: "Delete the limiter" }).click();
	await page.getByText("There is none yet").waitFor();
	assert.deepEqual((await s.call("GET", "/v1/limiters")).limiters, []);
});

test("a limiter that two changed is shown with theirs, and one that there is already is not made again", {
	skip: skip || narrow,
}, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/limiters/api", { concurrency: 2 });
	const page = await open(t, s, "default/limits/api", { allowed: [412] });
	const dialog = page.getByRole("dialog");
	await page.getByRole("button", { name: "Change…" }).click();
	await dialog.getByLabel("Cost at once").fill("5");
	await s.call("PUT", "/v1/limiters/api", { concurrency: 9 });
	await dialog.getByRole("button", { name: "Save" }).click();
	await dialog.getByText("Someone else changed this limiter meanwhile: version 2 bounds 9 at once.").waitFor();
	await accessible(page, "a limiter that two changed");
	await dialog.getByRole("button", { name: "Save over theirs" }).click();
	await dialog.waitFor({ state: "detached" });
	const { version, concurrency } = await s.call("GET", "/v1/limiters/api");
	assert.deepEqual([version, concurrency], ["3", 5]);

	await page.goto(`${s.url}/ui/default/limits`);
	await page.getByRole("button", { name: "New limiter…" }).click();
	await dialog.getByLabel("Name", { exact: true }).fill("api");
	await dialog.getByRole("button", { name: "Make" }).click();
	await dialog.getByText(/There is a limiter of this name already/).waitFor();
	assert.equal((await s.call("GET", "/v1/limiters/api")).version, "3");
});

test("limiters are told live, stay in their places, and are found by keyboard alone", {
	skip: skip || narrow,
}, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/limiters/api", { concurrency: 2, rate: { limit: 600, per: "1m" } });
	await s.call("PUT", "/v1/limiters/gpu", { concurrency: 1 });
	const page = await open(t, s);
	let asked = 0;
	page.on("request", (r) => {
		if (/\/v1\/limiters\?/.test(r.url())) asked++;
	});
	await page.locator(".live-live").waitFor();
	await page.keyboard.press("g");
	await page.keyboard.press("l");
	const row = (/** @type {RegExp} */ name) => page.getByRole("row", { name });
	await row(/^api/).getByText("0 / 2").waitFor();
	await row(/^api/).getByText("600 per 1m").waitFor();
	// The page waits for the stream to have told of limiters.
	await s.create("calls", {}, { limiters: ["api"] });
	await row(/^api/).getByText("1", { exact: true }).waitFor();
	const before = asked;
	const a = await s.claim("calls");
	await row(/^api/).getByText("1 / 2").waitFor();
	await s.call("PUT", "/v1/limiters/disk", {});
	await page.getByRole("button", { name: "1 newer, show" }).waitFor();
	assert.equal(asked, before, "what the stream tells is not asked for");
	await page.getByRole("button", { name: "1 newer, show" }).click();
	await row(/^disk/).getByText("bounds nothing").waitFor();
	await s.call("DELETE", "/v1/limiters/disk");
	await page.locator("tr.stale").getByText("disk").waitFor();

	await page.keyboard.press("j");
	await page.keyboard.press("e");
	await page.getByRole("link", { name: end(a.id) }).waitFor();
	await accessible(page, "limiters");
	await page.keyboard.press("Enter");
	await page.waitForURL(/\/limits\/api/);
	await page.goto(`${s.url}/ui/default/limits?prefix=g`);
	await row(/^gpu/).waitFor();
	assert.equal(await row(/^api/).count(), 0);
	await page.keyboard.press("Control+k");
	await page.keyboard.type("ap");
	await page.getByRole("option", { name: "Limiter api" }).click();
	await page.waitForURL(/\/limits\/api/);
});

test("the bounds of the namespace and the tenant stand with what is used, and are told to who may know them", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const ada = made("ada", "--role", "admin", "--scope", "tenant:admin");
	const vera = made("vera", "--role", "viewer");
	const s = await server(t, "--tokens", tokensFile(t, [ada, vera]));
	s.token = ada.token;
	for (let i = 0; i < 2; i++) await s.create("mail", { n: i });
	await s.call("PUT", "/v1/tenants/default", { tasks: 3, key_writes_per_second: 5000 });
	await s.call("PUT", "/v1/namespace", { key_bytes: 1_048_576 });
	const enter = async (/** @type {string} */ token) => {
		const page = await tab(t, await context(t), [401]);
		/** @type {string[]} */
		const asked = [];
		page.on("request", (r) => void asked.push(new URL(r.url()).pathname));
		await page.goto(`${s.url}/ui/default/limits`);
		await page.getByLabel("Token").fill(token);
		await page.getByRole("button", { name: "Sign in" }).click();
		await settled(page);
		return { page, asked };
	};
	const { page } = await enter(ada.token);
	const tenant = page.getByRole("table", { name: "Bounds of the tenant" });
	await tenant.getByRole("row", { name: "tasks that have not ended 2 3" }).waitFor();
	await tenant.getByRole("row", { name: "tasks created" }).getByText("no bound").waitFor();
	await tenant.getByRole("row", { name: "puts of keys" }).getByText("5,000/s").waitFor();
	const space = page.getByRole("table", { name: "Bounds of the namespace" });
	await space.getByRole("row", { name: /^keys on disk .* 1 MiB/ }).waitFor();
	await s.create("mail", { n: 3 });
	await tenant.getByRole("row", { name: "tasks that have not ended 3 3" }).waitFor();

	// What is refused is counted with the bound that refuses it.
	await tenant.getByRole("row", { name: "tasks that have not ended 3 3 0" }).waitFor();
	const refused = (/** @type {Promise<unknown>} */ call) => assert.rejects(call, /: 429 /);
	for (let i = 0; i < 2; i++) await refused(s.create("mail", { n: 4 }));
	await tenant.getByRole("row", { name: /^tasks that have not ended 3 3 2 / }).waitFor();
	await s.call("PUT", "/v1/queues/few", { max_tasks: 1 });
	await s.call("PUT", "/v1/tenants/default", { tasks: 100, key_writes_per_second: 5000 });
	await s.call("PUT", "/v1/namespace", { key_bytes: 1_048_576, key_writes_per_second: 1 });
	// A rate, and what partitions are told of their tenant, are known a moment later.
	const passes = async (/** @type {() => Promise<unknown>} */ call, /** @type {boolean} */ good) => {
		while (
			(await call().then(
				() => true,
				() => false,
			)) !== good
		)
			await new Promise((done) => setTimeout(done, 50));
	};
	await passes(() => s.create("few", {}), true);
	await refused(s.create("few", {}));
	await passes(() => s.call("PUT", "/v1/kv/s/keys/a", { value: "MQ==" }), false);
	await space.getByRole("row", { name: /^max_tasks – of each 1 / }).waitFor();
	await space.getByRole("row", { name: /^puts of keys .* 1\.0\/s 1 / }).waitFor();
	await page
		.getByText(/^Refusals are counted since \d\d:\d\d \(memory of /)
		.first()
		.waitFor();
	await accessible(page, "bounds");

	const other = await enter(vera.token);
	await other.page.getByRole("table", { name: "Bounds of the namespace" }).waitFor();
	await other.page.getByText("They are told to tokens with the scope admin or tenant:admin.").waitFor();
	assert.equal(await other.page.getByText("running tasks").count(), 0);
	assert.ok(!other.asked.some((p) => p.startsWith("/v1/tenant")), "what may not be told is not asked for");
	assert.ok(await other.page.getByRole("button", { name: "New limiter…" }).isDisabled());
});

test("limits are accessible and fit a telephone, in both themes", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const name = "a-limiter-with-quite-a-long-name.of-a-service.example.org";
	await s.call("PUT", `/v1/limiters/${name}`, { concurrency: 2000, rate: { limit: 600, per: "1m", burst: 50 } });
	await s.call("PUT", "/v1/queues/q", { limiters: [name] });
	await s.create("q", {});
	await s.claim("q");
	for (const colorScheme of /** @type {("light" | "dark")[]} */ (["light", "dark"])) {
		const page = await open(t, s, "", { context: await context(t, { colorScheme }) });
		for (const path of ["default/limits", `default/limits/${name}`, "default/queues/q/settings"]) {
			await go(page, path);
			await accessible(page, `${path}, ${colorScheme}`);
			await page.setViewportSize({ width: 360, height: 740 });
			const more = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
			assert.ok(more <= 0, `${path}: ${more} pixels wider than a screen of 360`);
			await page.setViewportSize({ width: 1280, height: 800 });
		}
	}
});
