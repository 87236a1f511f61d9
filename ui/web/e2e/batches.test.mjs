// Batches: tasks that are counted together, and what is made when all have ended.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, context, go, narrow, open, server, skip } from "./rig.mjs";

after(closeBrowser);

const end = (/** @type {string} */ id) => `…${id.slice(-6)}`;

/** Opens a batch. @param {import("./rig.mjs").Server} s @param {Record<string, unknown>} [spec] @returns {Promise<string>} */
const opened = async (s, spec = {}) => (await s.call("POST", "/v1/batches", spec)).batch.id;

/** Gives out a task and ends it. @param {import("./rig.mjs").Server} s @param {string} queue @param {"complete" | "fail"} how */
async function ends(s, queue, how) {
	const a = await s.claim(queue);
	const error = { code: "E", message: "no" };
	await s.call("POST", `/v1/tasks/${a.id}/${how}`, {
		token: a.token,
		...(how === "fail" ? { fatal: true, error } : {}),
	});
	return a.id;
}

test("a batch is followed from its first task to what it makes, and leads to its tasks", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "default/batches");
	await page.getByText("There is none yet").waitFor();
	await accessible(page, "no batches");
	const id = await opened(s, {
		labels: { of: "import" },
		on_done: { queue: "reports", payload: { of: "import" } },
		on_success: { queue: "publish" },
	});
	const tasks = [];
	for (let i = 0; i < 3; i++) tasks.push(await s.create("import", { file: i }, { batch: id }));
	await page.getByRole("button", { name: "1 newer, show" }).click();
	const row = page.getByRole("row", { name: new RegExp(end(id)) });
	await row.getByText("0 / 3").waitFor();
	await row.getByText("of=import").waitFor();
	await row.getByRole("img", { name: "3 tasks: 3 waiting" }).waitFor();
	await accessible(page, "batches");
	await page.keyboard.press("j");
	await page.locator("tr:focus").waitFor();
	await page.keyboard.press("Enter");
	await page.waitForURL(new RegExp(`/batches/${id}`));

	// What becomes of its tasks is told.
	const title = page.getByRole("heading", { level: 1 });
	await title.getByText("open").waitFor();
	const bar = (/** @type {string} */ name) => page.getByRole("img", { name, exact: true }).waitFor();
	await bar("3 tasks: 3 waiting");
	await ends(s, "import", "complete");
	await bar("3 tasks: 1 completed, 2 waiting");
	const dead = await ends(s, "import", "fail");
	await bar("3 tasks: 1 completed, 1 dead, 1 waiting");
	await page
		.getByRole("table", { name: "Newest tasks of the batch" })
		.getByRole("row", { name: new RegExp(end(dead)) })
		.getByText("dead")
		.waitFor();
	await accessible(page, "a batch");
	const made = page.getByRole("table", { name: "Tasks that it makes" });
	await made
		.getByRole("row", { name: /at the end reports/ })
		.getByText("made when the batch finishes")
		.waitFor();

	// Sealed, with what that means said first.
	await page.getByRole("button", { name: "Seal…" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByText("1 task that has not ended").waitFor();
	await accessible(page, "the dialog that seals a batch");
	const seal = await dialog.getByRole("button", { name: "Seal", exact: true }).boundingBox();
	assert.ok(seal);
	const at = /** @type {const} */ ([seal.x + seal.width / 2, seal.y + seal.height / 2]);
	await page.mouse.click(...at);
	await title.getByText("sealed").waitFor();
	await dialog.waitFor({ state: "detached" });
	assert.equal(await page.getByRole("button", { name: "Seal…" }).count(), 0);
	// The second click of a double click does nothing to the row that lay behind the dialog; a click of its own does.
	const behind = new URL(page.url()).pathname;
	await page.mouse.down({ clickCount: 2 });
	await page.mouse.up({ clickCount: 2 });
	await page.waitForTimeout(100);
	assert.equal(new URL(page.url()).pathname, behind);
	await page.mouse.click(...at);
	await page.waitForURL((u) => u.pathname !== behind);
	await page.goBack();
	await title.getByText("sealed").waitFor();
	assert.equal((await s.call("GET", `/v1/batches/${id}`)).state, "sealed");
	await ends(s, "import", "complete");
	await title.getByText("finished").waitFor();
	const { done_task: done } = await s.call("GET", `/v1/batches/${id}`);
	await made
		.getByRole("row", { name: /at the end reports/ })
		.getByRole("link", { name: end(done) })
		.waitFor();
	await made
		.getByRole("row", { name: /if all completed publish/ })
		.getByText("not made: not all of its tasks were completed")
		.waitFor();

	// Its tasks by state, and each of them leads back.
	await page.getByRole("link", { name: "1", exact: true }).click();
	await page.waitForURL((u) => u.searchParams.get("q") === `state:dead batch:${id}`);
	await page
		.getByRole("table", { name: "Tasks" })
		.getByRole("row", { name: new RegExp(end(dead)) })
		.click();
	await page.waitForURL(new RegExp(`/tasks/${dead}`));
	const back = page.getByRole("main").getByRole("link", { name: end(id) });
	// Nor does the second click of one whose first click opened the page.
	await back.hover();
	await page.mouse.down({ clickCount: 2 });
	await page.mouse.up({ clickCount: 2 });
	await page.waitForTimeout(100);
	assert.match(page.url(), new RegExp(`/tasks/${dead}`));
	await back.click();
	await page.waitForURL(new RegExp(`/batches/${id}`));
	await page.getByRole("link", { name: "All of them, with filters" }).click();
	for (const task of tasks) await page.getByRole("row", { name: new RegExp(end(task)) }).waitFor();

	// The dead of a batch are redriven together.
	await page.goto(`${s.url}/ui/default/batches/${id}`);
	await page.getByRole("button", { name: "Redrive dead…" }).click();
	await dialog.getByText(`state:dead batch:${id}`).waitFor();
	await dialog.getByText("1 task matches").waitFor();
	await dialog.getByLabel(/Type/).fill("1");
	await dialog.getByRole("button", { name: "Redrive", exact: true }).click();
	await dialog.getByText("1 / 1").waitFor();
	await dialog.getByRole("button", { name: "Close" }).click();
	await bar("3 tasks: 2 completed, 1 waiting");
	await title.getByText("finished").waitFor();
	await page.goto(`${s.url}/ui/default/bulk`);
	await page
		.getByRole("row", { name: /redrive/ })
		.getByText(`batch:${id}`)
		.waitFor();
});

test("a batch is opened from the page, with the tasks that it makes, and leads to it", { skip }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/namespace?ns=wide", { partitions: 3 });
	const page = await open(t, s, "wide/batches", { allowed: [413] });
	await page.getByRole("button", { name: "Open a batch…" }).click();
	const dialog = page.getByRole("dialog", { name: "Open a batch" });
	const done = dialog.getByRole("region", { name: "When all have ended" });
	const success = dialog.getByRole("region", { name: "If each was completed" });
	const go = dialog.getByRole("button", { name: "Open", exact: true });
	await done.getByLabel("Payload, as JSON").fill("{");
	await done.getByText("is required with a kind or a payload").waitFor();
	await done.getByLabel("Queue").fill("reports");
	assert.ok(await go.isDisabled(), "a payload is JSON");
	await done.getByLabel("Payload, as JSON").fill('{"n": 9007199254740993}');
	await success.getByLabel("Queue").fill("publish");
	await success.getByLabel("Kind").fill("publish.now");
	await dialog.getByLabel(/^Labels/).fill("of=import");
	await accessible(page, "the dialog that opens a batch");

	// What the server refuses stands at its field, and nothing is lost of what was typed.
	await dialog.getByLabel("Tag").fill("order 7");
	await dialog.getByLabel(/^Labels/).fill(`of=${"x".repeat(129)}`);
	await go.click();
	await dialog.getByText("Nothing was changed").waitFor();
	assert.equal(await dialog.getByLabel(/^Labels/).getAttribute("aria-invalid"), "true");
	await dialog.getByLabel(/^Labels/).fill("of=import");
	await go.dblclick();
	await page.waitForURL(/\/batches\/\w{26}/);
	const id = page.url().slice(-26);
	await page.getByRole("heading", { level: 1 }).getByText("open").waitFor();
	const made = page.getByRole("table", { name: "Tasks that it makes" });
	await made.getByRole("row", { name: /at the end reports/ }).waitFor();
	await made.getByRole("row", { name: /if all completed publish publish.now/ }).waitFor();
	const { batches } = await s.call("GET", "/v1/batches?ns=wide");
	assert.equal(batches.length, 1, "a double click opens one");
	assert.deepEqual([batches[0].id, batches[0].labels], [id, { of: "import" }]);
	// A task of the same tag is where the batch is.
	const task = (await s.call("POST", "/v1/tasks?ns=wide", { queue: "import", tag: "order 7", batch: id })).id;
	assert.equal((await s.call("GET", `/v1/tasks/${task}?ns=wide`)).batch, id);
	await s.call("POST", `/v1/batches/${id}:seal?ns=wide`);
	await s.call("POST", `/v1/tasks/${task}/cancel?ns=wide`, {});
	await page.getByRole("heading", { level: 1 }).getByText("finished").waitFor();
	const { done_task } = await s.call("GET", `/v1/batches/${id}?ns=wide`);
	const headers = { Authorization: `Bearer ${s.token}` };
	const payload = await fetch(`${s.url}/v1/tasks/${done_task}/payload?ns=wide`, { headers });
	assert.equal(await payload.text(), '{"n": 9007199254740993}', "what was typed, byte for byte");
});

test("a batch of many is cancelled when their number was typed, for a reason", { skip }, async (t) => {
	const s = await server(t);
	const id = await opened(s, { on_done: { queue: "reports" } });
	await s.call("POST", "/v1/tasks:batch", {
		tasks: Array.from({ length: 120 }, () => ({ queue: "import", batch: id })),
	});
	const page = await open(t, s, `default/batches/${id}`);
	await page.getByRole("button", { name: "Cancel…" }).click();
	const dialog = page.getByRole("dialog");
	const go = dialog.getByRole("button", { name: "Cancel the batch" });
	await dialog.getByText(/120 tasks that have not ended are cancelled/).waitFor();
	await dialog.getByText(/Then the task in reports is made/).waitFor();
	await dialog.getByLabel(/Type/).fill("12");
	assert.ok(await go.isDisabled(), "the wrong number keeps it from being sent");
	await accessible(page, "the dialog that cancels a batch");
	await dialog.getByLabel(/Reason/).fill("wrong list");
	await dialog.getByLabel(/Type/).fill("120");
	const all = page.getByRole("img", { name: "120 tasks: 120 cancelled" });
	// What is read after the write comes late: the stream has told of the end by then.
	const ofBatch = (/** @type {string} */ url) => new URL(url).pathname === `/v1/batches/${id}`;
	await page.route(
		(url) => ofBatch(url.href),
		async (route) => {
			const response = await route.fetch();
			const body = await response.json();
			await all.waitFor();
			await route.fulfill({ response, json: { ...body, counts: { ...body.counts, cancelled: "100", ready: "20" } } });
		},
	);
	const late = page.waitForResponse((r) => ofBatch(r.url()));
	await go.click();
	await (await late).finished();
	await page.evaluate(() => new Promise((drawn) => setTimeout(drawn, 100)));
	assert.equal(await all.count(), 1, "a late answer hides what was told since");
	await page.getByRole("heading", { level: 1 }).getByText("finished").waitFor();
	await page.getByText(/: wrong list/).waitFor();
	assert.equal(await page.getByRole("button", { name: "Cancel…" }).count(), 0, "what has finished is not cancelled");
});

test("a task that a batch cannot make yet is named, with why, until it is there", { skip }, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/queues/reports", { max_tasks: 1 });
	await s.create("reports", {});
	const id = await opened(s, { on_done: { queue: "reports" } });
	await s.call("POST", `/v1/batches/${id}:seal`);
	const page = await open(t, s, `default/batches/${id}`, { allowed: [404] });
	await page.getByText("RESOURCE_EXHAUSTED").waitFor();
	await page.getByText("not made yet: the server tries again").waitFor();
	await accessible(page, "a batch whose task is refused");
	await s.call("PUT", "/v1/queues/reports", { max_tasks: 5 });
	await page.getByRole("table", { name: "Tasks that it makes" }).getByRole("link", { name: /^…/ }).waitFor();
	assert.equal(await page.getByText("RESOURCE_EXHAUSTED").count(), 0);
	await page.goto(`${s.url}/ui/default/batches/01KAJ0C7Q4G000000000000000`);
	await page.getByText(/^There is no batch/).waitFor();
});

test("batches are accessible and fit a telephone, in both themes", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const id = await opened(s, {
		labels: { customer: "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", of: "import" },
		on_done: { queue: "a-queue-with-quite-a-long-name.of-a-service.example.org" },
	});
	for (let i = 0; i < 4; i++) await s.create("import", { file: i }, { batch: id });
	await ends(s, "import", "complete");
	await ends(s, "import", "fail");
	await s.claim("import");
	for (const colorScheme of /** @type {("light" | "dark")[]} */ (["light", "dark"])) {
		const page = await open(t, s, "", { context: await context(t, { colorScheme }) });
		for (const path of ["default/batches", `default/batches/${id}`]) {
			await go(page, path);
			await accessible(page, `${path}, ${colorScheme}`);
			await page.setViewportSize({ width: 360, height: 740 });
			const more = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
			assert.ok(more <= 0, `${path}: ${more} pixels wider than a screen of 360`);
			await page.setViewportSize({ width: 1280, height: 800 });
		}
	}
});
