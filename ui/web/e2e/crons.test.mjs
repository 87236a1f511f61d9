// Crons on the page: what the server previews is what is shown, and what is clicked is what happens.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, context, go, narrow, open, server, skip, wide } from "./rig.mjs";

after(closeBrowser);

/** The times of a list, as they were given. @param {import("playwright-core").Locator} list @returns {Promise<string[]>} */
const timesOf = (list) => list.locator("time").evaluateAll((all) => all.map((t) => t.getAttribute("datetime") ?? ""));

test("a cron is made after a preview of the server, run by hand, paused, and removed", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "default/crons", { allowed: [400] });
	await page.getByText("There is none yet").waitFor();
	await accessible(page, "no crons");
	await page.getByRole("button", { name: "New cron…" }).click();
	const dialog = page.getByRole("dialog");
	const make = dialog.getByRole("button", { name: "Make" });
	await dialog.getByLabel("Name", { exact: true }).fill("nightly");
	await dialog.getByLabel("Schedule", { exact: true }).fill("0 25 * * *");
	await dialog.getByRole("alert").getByText("hour").waitFor();
	assert.ok(await make.isDisabled(), "what the server cannot read is not sent");
	await dialog.getByLabel("Schedule", { exact: true }).fill("0 2 * * *");
	await dialog.getByLabel("Zone").fill("Europe/Berlin");
	await dialog.getByText("at 02:00 every day").waitFor();
	const said = await s.call("POST", "/v1/crons:preview", { schedule: "0 2 * * *", zone: "Europe/Berlin", count: 5 });
	await dialog.locator("time[datetime$='+01:00'],time[datetime$='+02:00']").first().waitFor();
	assert.deepEqual(await timesOf(dialog.getByRole("list", { name: "Next times" })), said.times);
	assert.ok(await make.isDisabled(), "a cron needs a queue");
	await dialog.getByLabel("Queue", { exact: true }).fill("reports");
	await dialog.getByLabel("Key", { exact: true }).fill("ann");
	const payload = '{"n":9007199254740993,"b":1,"a":-0}';
	await dialog.getByLabel("Payload, as JSON").fill(payload);
	await accessible(page, "the dialog of a cron");
	await make.click();
	await page.waitForURL(/\/crons\/nightly/);
	await page.getByRole("list", { name: "Next slots" }).locator("li").nth(4).waitFor();
	const set = await fetch(`${s.url}/v1/crons/nightly`, { headers: { Authorization: `Bearer ${s.token}` } });
	assert.ok((await set.text()).includes(payload), "the payload goes as it was typed");
	await page.getByText("9007199254740993").waitFor();

	// Run by hand: the first one makes a task, the next one is skipped, since that has not ended.
	const runs = page.getByRole("table", { name: "Runs of nightly" });
	await page.getByRole("button", { name: "Trigger now" }).click();
	await page.getByText(/nightly runs by hand: task/).waitFor();
	await runs.getByText("by hand").waitFor();
	const a = await s.claim("reports");
	await page.getByRole("button", { name: "Trigger now" }).click();
	await runs.getByText("skipped: the task before had not ended").waitFor();
	await s.call("POST", `/v1/tasks/${a.id}/complete`, { token: a.token });
	await runs.getByText("completed").waitFor();
	const link = runs.getByRole("link", { name: `…${a.id.slice(-6)}` });
	assert.match((await link.getAttribute("href")) ?? "", new RegExp(a.id));
	assert.equal((await s.call("GET", `/v1/tasks/${a.id}`)).key, "ann");
	await accessible(page, "a cron");

	// Paused, and undone.
	await page.getByRole("button", { name: "Pause", exact: true }).click();
	await page.getByRole("heading", { level: 1 }).getByText("paused").waitFor();
	assert.equal((await s.call("GET", "/v1/crons/nightly")).paused, true);
	await page.getByRole("button", { name: "Undo" }).click();
	await page.getByRole("heading", { level: 1 }).getByText(/● on/).waitFor();
	assert.ok(!(await s.call("GET", "/v1/crons/nightly")).paused);

	// The list has all of it, by the clocks that are asked for, and by the keyboard alone.
	await page.keyboard.press("g");
	await page.keyboard.press("n");
	const row = page.getByRole("row", { name: /nightly/ });
	await row.getByRole("img", { name: /^2 runs: 1 completed, 1 skipped/ }).waitFor();
	await row.getByText(/02:00 \+0[12]:00/).waitFor();
	await page.getByRole("button", { name: "UTC", exact: true }).click();
	await row.getByText(/0[01]:00 UTC/).waitFor();
	assert.match(page.url(), /view=utc/, "the address is the state");
	await page.keyboard.press("j");
	await page.keyboard.press("p");
	await row.getByText("paused").waitFor();
	await page.keyboard.press("p");
	await row.getByText(/● on/).waitFor();
	await page.keyboard.press("Enter");
	await page.waitForURL(/\/crons\/nightly/);

	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "Delete…" }).click();
	await dialog.getByRole("button", { name: "Delete the cron" }).click();
	await page.getByText("There is none yet").waitFor();
	assert.deepEqual((await s.call("GET", "/v1/crons")).crons, []);
});

test("over both changes of the clocks the page shows what the server gives, in three zones", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "default/crons");
	await page.getByRole("button", { name: "New cron…" }).click();
	const dialog = page.getByRole("dialog");
	const zones = /** @type {[string, string][]} */ ([
		// Clocks that move by half an hour.
		["Australia/Lord_Howe", "15,45 1,2 * * *"],
		["Europe/Berlin", "30 2 * * *"],
		["America/New_York", "30 1,2 * * *"],
	]);
	for (const [zone, schedule] of wide ? zones : zones.slice(0, 1)) {
		await dialog.getByLabel("Schedule", { exact: true }).fill(schedule);
		await dialog.getByLabel("Zone").fill(zone);
		const said = await s.call("POST", "/v1/crons:preview", { schedule, zone, count: 5 });
		await dialog.locator(`time[datetime="${said.times[0]}"]`).waitFor();
		assert.deepEqual(await timesOf(dialog.getByRole("list", { name: "Next times" })), said.times, zone);
		const changes = dialog.getByRole("list", { name: "Changes of the clocks" });
		assert.deepEqual(
			await timesOf(changes),
			said.dst.map((/** @type {any} */ c) => c.at),
			zone,
		);
		assert.deepEqual(said.dst.map((/** @type {any} */ c) => c.kind).sort(), ["repeated", "skipped"], zone);
		for (const c of said.dst) {
			const line = changes.getByRole("listitem").filter({ has: page.locator(`:scope > time[datetime="${c.at}"]`) });
			await line.getByText(c.words).waitFor();
			await line.getByRole("button", { name: "show that day" }).click();
			const around = line.getByRole("list", { name: /^Slots around/ });
			await around.waitFor();
			const from = new Date(Date.parse(c.at) - 12 * 3_600_000).toISOString();
			const there = await s.call("POST", "/v1/crons:preview", { schedule, zone, count: 5, from });
			assert.deepEqual(await timesOf(around), there.times, `${zone}, around ${c.at}`);
			// The slots that the change moves, or that would come twice, are marked with what it does.
			const hit = there.times.filter((/** @type {string} */ x) => c.slots?.includes(x));
			assert.ok(hit.length > 0, `${zone}: ${c.words}`);
			for (const at of hit)
				await around
					.getByRole("listitem")
					.filter({ has: page.locator(`time[datetime="${at}"]`) })
					.getByText(c.words)
					.waitFor();
			await line.getByRole("button", { name: "hide that day" }).click();
		}
	}
	await accessible(page, "a preview with changes of the clocks");
});

test("a cron that two changed is shown with both, and a refusal stands at its field", {
	skip: skip || narrow,
}, async (t) => {
	const s = await server(t);
	const cron = { schedule: "@hourly", template: { queue: "q", payload: 1, headers: [{ name: "x", value: "y" }] } };
	await s.call("PUT", "/v1/crons/c", cron);
	const page = await open(t, s, "default/crons/c", { allowed: [400, 412] });
	await page.getByRole("button", { name: "Edit…" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByLabel("Jitter").fill("1h");
	await dialog.getByRole("button", { name: "Save" }).click();
	await dialog.getByText("Nothing was changed.").waitFor();
	assert.equal(await dialog.getByLabel("Jitter").getAttribute("aria-invalid"), "true");
	await dialog.getByLabel("Jitter").fill("5m");
	await s.call("PUT", "/v1/crons/c", { ...cron, schedule: "@daily" });
	await dialog.getByRole("button", { name: "Save" }).click();
	await dialog.getByText(/Someone else changed this cron/).waitFor();
	await dialog.locator("del", { hasText: "@daily" }).waitFor();
	await accessible(page, "a cron that two changed");
	await dialog.getByRole("button", { name: "Save over theirs" }).click();
	await dialog.waitFor({ state: "detached" });
	const now = await s.call("GET", "/v1/crons/c");
	assert.deepEqual(
		[now.version, now.schedule, now.jitter, now.template.headers[0].name],
		["3", "@hourly", "300s", "x"],
	);
});

test("what becomes of crons is told live, and they stay in their places", { skip: skip || narrow }, async (t) => {
	const s = await server(t);
	for (const name of ["b", "a"])
		await s.call("PUT", `/v1/crons/${name}`, { schedule: "@yearly", template: { queue: "q" } });
	const page = await open(t, s, "default/crons");
	let asked = 0;
	page.on("request", (r) => {
		if (/\/v1\/crons\?/.test(r.url())) asked++;
	});
	const row = (/** @type {RegExp} */ name) => page.getByRole("row", { name });
	await row(/^a/).getByText("● on").waitFor();
	await s.call("POST", "/v1/crons/a:pause");
	await row(/^a/).getByText("paused").waitFor();
	const before = asked;
	// Crons are told of every other second: what happens at once is told at once.
	await s.call("POST", "/v1/crons/b:pause");
	await s.call("PUT", "/v1/crons/c", { schedule: "@yearly", template: { queue: "q" } });
	await row(/^b/).getByText("paused").waitFor();
	await page.getByRole("button", { name: "1 newer, show" }).waitFor();
	assert.equal(asked, before, "what the stream tells is not asked for");
	await page.getByRole("button", { name: "1 newer, show" }).click();
	await row(/^c on|^c ● on/).waitFor();
	await s.call("DELETE", "/v1/crons/c");
	// A run is seen as the last one, and in the strip of runs, which is asked for then.
	await s.call("POST", "/v1/crons/b:trigger", {});
	await page.locator("tr.stale").getByText("c", { exact: true }).waitFor();
	await row(/^b/)
		.getByRole("img", { name: /^1 run/ })
		.waitFor();
	// The page of one hears of it too: the run, and its end.
	await page.goto(`${s.url}/ui/default/crons/b`);
	const runs = page.getByRole("table", { name: "Runs of b" });
	await runs.getByText("ready").waitFor();
	const a = await s.claim("q");
	await runs.getByText("running").waitFor();
	await s.call("POST", `/v1/tasks/${a.id}/complete`, { token: a.token });
	await runs.getByText("completed").waitFor();
});

test("crons are accessible and fit a telephone, in both themes", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/crons/a-cron-with-quite-a-long-name", {
		schedule: "*/15 9-17 * * mon-fri",
		zone: "America/Argentina/Buenos_Aires",
		template: { queue: "q" },
	});
	for (const colorScheme of /** @type {("light" | "dark")[]} */ (["light", "dark"])) {
		const page = await open(t, s, "", { context: await context(t, { colorScheme }) });
		for (const path of ["default/crons", "default/crons/a-cron-with-quite-a-long-name"]) {
			await go(page, path);
			await accessible(page, `${path}, ${colorScheme}`);
			await page.setViewportSize({ width: 360, height: 740 });
			const more = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
			assert.ok(more <= 0, `${path}: ${more} pixels wider than a screen of 360`);
			await page.setViewportSize({ width: 1280, height: 800 });
		}
		await page.getByRole("button", { name: "Edit…" }).click();
		await page.getByRole("dialog").getByRole("list", { name: "Next times" }).waitFor();
		await accessible(page, `the dialog of a cron, ${colorScheme}`);
	}
});
