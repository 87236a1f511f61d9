// The list of tasks, one task with its timeline, why it waits, and the card of what it changed.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, open, server, skip } from "./rig.mjs";

after(closeBrowser);

/** Waits until a task is in a state. @param {import("./rig.mjs").Server} s @param {string} id @param {string} state */
async function reaches(s, id, state) {
	for (;;) {
		const task = await s.call("GET", `/v1/tasks/${id}?view=meta`);
		if (task.state === state) return task;
		await new Promise((done) => setTimeout(done, 50));
	}
}

/** @param {import("./rig.mjs").Server} s @param {any} task @param {string} how @param {Record<string, unknown>} [body] */
const settle = (s, task, how, body = {}) =>
	s.call("POST", `/v1/tasks/${task.id}/${how}`, { token: task.token, ...body });

/** Texts of the cells of a table, row by row. @param {import("playwright-core").Locator} table */
const cells = (table) =>
	table
		.locator("tbody tr")
		.evaluateAll((rows) => rows.map((r) => [...r.querySelectorAll("th,td")].map((c) => (c.textContent ?? "").trim())));

test("the timeline tells each attempt as it is stored, and no live token", { skip }, async (t) => {
	const s = await server(t);
	const id = await s.create("mail", { to: "ada" });
	const claimed = await s.call("POST", "/v1/tasks:claim", { queues: ["mail"], max: 1, worker: "w-1", lease: "1s" });
	assert.equal(claimed.tasks.length, 1);
	await reaches(s, id, "ready"); // its lease is over: a crash
	const error = { code: "SMTP", message: "451 later", stack: "a\nb\nc" };
	await settle(s, await s.claim("mail", "w-2"), "fail", { error, retry_after: "100ms" });
	await settle(s, await s.claim("mail", "w-3"), "snooze", { delay: "100ms" });
	await settle(s, await s.claim("mail", "w-4"), "release");
	await settle(s, await s.claim("mail", "w-5"), "fail", {
		error: { ...error, message: "550 no", stack: "a\nx\nc" },
		retry_after: "0s",
	});
	await s.claim("mail", "w-6");

	/** @type {string[]} */
	const bodies = [];
	const page = await open(t, s);
	page.on("response", (r) => {
		if (!r.url().includes("/v1/events"))
			r.text().then(
				(b) => bodies.push(b),
				() => {},
			);
	});
	await page.goto(`${s.url}/ui/default/tasks/${id}`);
	const table = page.getByRole("table", { name: /What happened/ });
	await table.getByText("running").waitFor();
	const outcomes = async () => (await cells(table)).map((c) => (c[5] ?? "").replace(/^\W*/, "").split(" ")[0]);
	assert.deepEqual(await outcomes(), ["created", "crashed", "failed", "snoozed", "released", "failed", "running"]);
	await accessible(page, "timeline");

	await page.getByRole("button", { name: "Force release…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Force release" }).click();
	await page.getByText(/ready for/).waitFor(); // why it waits
	await s.claim("mail", "w-7");
	await table.getByRole("link", { name: "w-7" }).waitFor();
	const { attempts } = await s.call("GET", `/v1/tasks/${id}/attempts`);
	const shown = (await cells(table)).slice(1);
	assert.deepEqual(
		shown.map((c) => [c[1], c[2], c[3]]),
		attempts.map((/** @type {any} */ a) => [`try ${a.number}`, a.worker, a.token ?? "···"]),
	);
	const local = (/** @type {string} */ at) => {
		const d = new Date(at);
		return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(11, 21);
	};
	assert.deepEqual(
		shown.map((c) => c[0]),
		attempts.map((/** @type {any} */ a) => local(a.start)),
	);
	const live = (await s.call("GET", `/v1/tasks/${id}?view=meta`)).attempt;
	assert.equal(live, 7);
	assert.equal(attempts[6].token, undefined);
	const tokens = bodies.join("\n").match(/"token":"?\d+/g) ?? [];
	const ended = attempts.slice(0, 6).map((/** @type {any} */ a) => `"token":"${a.token}`);
	assert.deepEqual(
		tokens.filter((x) => !ended.includes(x)),
		[],
		"a token that is not retired reached the page",
	);

	// The error of the last failure, and what differs from the one before.
	await page.getByRole("heading", { name: "Error of try 5" }).waitFor();
	await page.getByRole("button", { name: "diff with try 2" }).click();
	const diff = await page.getByRole("region", { name: /What differs/ }).innerText();
	assert.deepEqual(
		diff.split("\n").filter((l) => /^[-+]/.test(l)),
		["- SMTP 451 later", "+ SMTP 550 no", "- b", "+ x"],
	);
	await page.keyboard.press("[");
	await page.waitForURL(/attempt=4/);
	await page.keyboard.press("[");
	await page.keyboard.press("[");
	await page.getByRole("heading", { name: "Error of try 2" }).waitFor();
});

test("a completion is one card: what it wrote, and whether that still stands", { skip }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/repos", { name: "app" });
	await s.call("PUT", "/v1/collections/people", { text_fields: [{ name: "text" }] });
	await s.call("PUT", "/v1/kv/stock/keys/apples", "5");
	await s.create("later", {});
	const id = await s.create("ship", { order: 7 });
	const ops = [
		{ kv_put: { keyspace: "sent", key: "order/7", value: "ada" } },
		{ kv_add: { keyspace: "counts", key: "sent", delta: 1 } },
		{ kv_put: { keyspace: "tmp", key: "<img src=x>", value: "<script>alert(1)</script>" } },
		{ kv_delete: { keyspace: "stock", key: "pears" } },
		{ task_create: { queue: "audit", payload: {} } },
		{ vector_upsert: { collection: "people", point: { id: "w1", payload: { text: "Ada" } } } },
		{
			ref_transaction: {
				repo: "app",
				changes: [{ kind: "symref_create", name: "refs/heads/a", target: "refs/heads/main" }],
			},
		},
		{ queue_pause: { queue: "later" } },
	];
	const conditions = [{ keyspace: "stock", key: "apples", compare: "equal", value: "5" }];
	const claimed = await s.claim("ship");
	const page = await open(t, s, `default/tasks/${id}/effects`);
	await page.getByText("Nothing yet").waitFor();
	await settle(s, claimed, "complete", { result: { ok: true }, effects: { conditions, ops } });
	const card = page.getByRole("region", { name: "One commit" });
	await card.getByText("8 ops").waitFor(); // live
	const effects = await s.call("GET", `/v1/tasks/${id}/effects`);
	const head = await card.locator("header").innerText();
	for (const part of [`p0@${effects.commit_index}`, `rev ${effects.rev}`, `token ${effects.token}`])
		assert.ok(head.includes(part), `${part} in ${head}`);
	await card.getByText("→ ada").waitFor(); // the value that still is as it was written
	await card.getByText("→ 1").waitFor();
	await card.getByText("condition held: stock/apples").waitFor();
	const rows = (await cells(card.getByRole("table"))).map((c) => [c[0], c[1], c[2], c[4]]);
	assert.deepEqual(rows, [
		["task", "complete", `…${id.slice(-6)}`, ""],
		["key", "put", "sent/order/7", "✓ still current"],
		["key", "add", "counts/sent", "✓ still current"],
		["key", "put", "tmp/<img src=x>", "✓ still current"],
		["key", "delete", "stock/pears", "✓ still absent"],
		["task", "create", `…${effects.effects[4].key.slice(-6)}`, "● ready now"],
		["point", "upsert", "people/w1", "✓ still current"],
		["ref", "create", "app refs/heads/a", "✓ still current"],
		["queue", "pause", "later", ""],
	]);
	await accessible(page, "effects");

	await s.call("PUT", "/v1/kv/sent/keys/order%2F7", "bob");
	await s.call("DELETE", "/v1/kv/counts/keys/sent");
	await page.reload();
	await card.getByText("overwritten since").waitFor();
	await card.getByText("deleted since").waitFor();
	await card.getByText("5 of 7 still current").waitFor();
	await card.getByRole("link", { name: "sent/order/7" }).click();
	await page.waitForURL(/\/kv\/sent\?key=order/);
});

test("a card of 250 ops shows 100 and the count; dead tasks say that nothing was changed", { skip }, async (t) => {
	const s = await server(t);
	const id = await s.create("ship", {});
	const ops = Array.from({ length: 250 }, (_, i) => ({ kv_put: { keyspace: "b", key: `k${i}`, value: "1" } }));
	await settle(s, await s.claim("ship"), "complete", { effects: { ops } });
	const page = await open(t, s, `default/tasks/${id}/effects`);
	const card = page.getByRole("region", { name: "One commit" });
	await card.getByText("250 ops").waitFor();
	assert.equal(await card.locator("tbody tr").count(), 101); // with the completion
	await card.getByText("The first 100 of 250 are shown").waitFor();
	const dead = await s.create("ship", {});
	await settle(s, await s.claim("ship"), "fail", { error: { message: "no" }, fatal: true });
	await page.goto(`${s.url}/ui/default/tasks/${dead}/effects`);
	await page.getByText("Nothing was changed.").waitFor();
});

test("a task that waits says why, who holds it up, and what to do", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {}, { priority: 9 });
	const id = await s.create("mail", {});
	await s.call("POST", "/v1/queues/mail:pause", { reason: "deploy of v9" });
	const page = await open(t, s, `default/tasks/${id}`);
	const why = page.getByRole("region", { name: "Why it waits" });
	await why.getByText(/is paused by \S+: “?deploy of v9/).waitFor();
	await why.getByText("No worker takes tasks of queue").waitFor();
	await why.getByText("1 task goes before it").waitFor();
	await accessible(page, "why it waits");
	await why.getByRole("button", { name: "Resume mail" }).click();
	await why.getByText("is paused by").waitFor({ state: "detached" });
	await settle(s, await s.claim("mail"), "complete");
	await why.getByText("It is the next one of queue").waitFor();

	const late = await s.create("mail", {}, { delay: "1h" });
	await page.goto(`${s.url}/ui/default/tasks/${late}`);
	await why.getByText(/Its time has not come: it runs in 59 m/).waitFor();
	await page.getByRole("button", { name: "Run now" }).click();
	await why.getByText("Its time has not come").waitFor({ state: "detached" });
	assert.equal((await s.call("GET", `/v1/tasks/${late}`)).state, "ready");
});

test("a payload is edited byte for byte, and a dead task is retried by a letter", { skip }, async (t) => {
	const s = await server(t);
	const payload = '{"b":9007199254740993,"a":1.0,"b":"twice"}';
	const id = (
		await s.call("POST", "/v1/tasks", `{"queue":"mail","payload":${payload}}`, { "Content-Type": "application/json" })
	).id;
	await settle(s, await s.claim("mail"), "fail", { error: { message: "no" }, fatal: true });
	const page = await open(t, s, `default/tasks/${id}`);
	await page.getByRole("button", { name: "Edit…" }).click();
	const field = page.getByLabel(/^Payload/);
	assert.equal(await field.inputValue(), payload);
	await accessible(page, "edit");
	await field.fill(payload.replace("twice", "thrice"));
	await page.getByLabel(/^Labels/).fill("order=7");
	await page.getByRole("button", { name: "Change" }).click();
	await page.getByRole("dialog").waitFor({ state: "detached" });
	const raw = await fetch(`${s.url}/v1/tasks/${id}/payload`, { headers: { Authorization: `Bearer ${s.token}` } });
	assert.equal(await raw.text(), payload.replace("twice", "thrice"));
	assert.deepEqual((await s.call("GET", `/v1/tasks/${id}`)).labels, { order: "7" });
	await page.keyboard.press("r");
	assert.equal((await reaches(s, id, "ready")).failures, 0);
	await page.getByRole("button", { name: "Cancel…" }).waitFor();
	await page.keyboard.press("c");
	await page.getByLabel(/^Reason/).fill("not needed");
	await page.getByRole("button", { name: "Cancel the task" }).click();
	const cancelled = await reaches(s, id, "cancelled");
	await page.getByRole("dialog").waitFor({ state: "detached" }); // keys do nothing while one is open
	assert.equal(cancelled.cancel.reason, "not needed");
	await page.keyboard.press("2");
	await page.waitForURL(/\/payload$/);
	await page.getByText("thrice").waitFor();
});

test("a log is followed, and each line is text", { skip }, async (t) => {
	const s = await server(t);
	const id = await s.create("mail", {});
	const task = await s.claim("mail");
	const report = (/** @type {number} */ number, /** @type {string[]} */ lines) =>
		settle(s, task, "report", { number, lines, progress: { percent: number, message: "<b>part</b>" } });
	await report(1, ["<img src=x onerror=alert(1)>", "a\u0007b"]);
	const page = await open(t, s, `default/tasks/${id}/logs`);
	await page.getByText("<img src=x onerror=alert(1)>").waitFor();
	await page.getByText("a␇b").waitFor();
	await report(2, ["second"]);
	await page.getByText("second").waitFor();
	await page.getByText("<b>part</b>").waitFor();
	await page.getByLabel("Show only lines with").fill("sec");
	await page.getByText("1 line", { exact: true }).waitFor();
	await accessible(page, "logs");
});

test("tasks are found by a filter, marked and acted on; the list does not move", { skip }, async (t) => {
	const s = await server(t);
	for (let n = 0; n < 5; n++) await s.create("mail", { n }, { labels: { order: String(n) } });
	const other = await s.create("build", {});
	const page = await open(t, s, "default/tasks?q=queue:mail");
	const grid = page.getByRole("table", { name: "Tasks" });
	await grid.locator("tbody tr").nth(4).waitFor();
	assert.equal(await grid.getByRole("link", { name: `…${other.slice(-6)}` }).count(), 0);
	await accessible(page, "tasks");

	const filter = page.getByRole("combobox", { name: "Filter" });
	await page.keyboard.press("/");
	await filter.fill("queue:mail stat:dead");
	await filter.press("Escape");
	await filter.press("Enter");
	const fault = page.getByRole("alert");
	assert.match(await fault.innerText(), /^stat:dead there is no qualifier stat:/);
	assert.deepEqual(
		await filter.evaluate((f) => {
			const i = /** @type {HTMLInputElement} */ (f);
			return i.value.slice(i.selectionStart ?? 0, i.selectionEnd ?? 0);
		}),
		"stat:dead",
	);
	await filter.fill("queue:mail label.order:3 st");
	await page.getByRole("option", { name: /^state:/ }).waitFor();
	await filter.press("ArrowDown");
	await filter.press("Enter");
	await filter.pressSequentially("re");
	await filter.press("ArrowDown");
	await filter.press("Enter");
	assert.equal((await filter.inputValue()).trim(), "queue:mail label.order:3 state:ready");
	await filter.press("Enter");
	await page.waitForURL(/state:ready/);
	await page
		.getByRole("status")
		.getByText(/found 1/)
		.waitFor();
	assert.equal(await grid.locator("tbody tr").count(), 1);

	// What leaves the filter stays where it is, and says so; what is newer is offered.
	await page.goto(`${s.url}/ui/default/tasks?q=queue:mail+state:ready`);
	await grid.locator("tbody tr").nth(4).waitFor();
	const ids = () => grid.locator("tbody th a").evaluateAll((all) => all.map((a) => a.getAttribute("title")));
	const before = await ids();
	const claimed = await s.claim("mail");
	await grid.locator("tr.stale").getByText("running").waitFor();
	await s.create("mail", {});
	await page.getByRole("button", { name: /1 newer, show/ }).waitFor();
	assert.deepEqual(await ids(), before);
	await page.getByRole("button", { name: /1 newer, show/ }).click();
	await grid.locator("tr.stale").waitFor({ state: "detached" });
	await grid.locator("tbody tr").nth(4).waitFor();
	assert.equal((await ids()).length, 5);

	await grid.locator("tbody tr").first().focus();
	await page.keyboard.press("x");
	await page.keyboard.press("j");
	await page.keyboard.press("x");
	await page.getByText("2 selected").waitFor();
	await page.getByRole("button", { name: "Cancel…", exact: true }).click();
	await page.getByRole("button", { name: "Cancel them" }).click();
	await page.getByText("2 cancelled or told to stop").waitFor();
	const stats = await s.call("GET", "/v1/queues/mail/stats");
	assert.equal(stats.cancelled, 2);
	await page.keyboard.press("j");
	await page.keyboard.press("Enter");
	await page.waitForURL(/\/tasks\/[0-9A-Z]{26}$/);
	await settle(s, claimed, "complete");
});

test("all that match is a job of the server", { skip }, async (t) => {
	const s = await server(t);
	for (let n = 0; n < 7; n++) await s.create("mail", { n });
	await s.create("build", {});
	const page = await open(t, s, "default/tasks?q=queue:mail");
	await page.getByRole("button", { name: "Act on all tasks that match the filter" }).click();
	await page.getByRole("menuitem", { name: "Cancel…" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByText("7 tasks match").waitFor();
	await dialog.getByLabel(/^Type/).fill("7");
	await dialog.getByRole("button", { name: "Cancel tasks" }).click();
	await dialog.getByText(/done/i).first().waitFor();
	for (;;) {
		if ((await s.call("GET", "/v1/queues/mail/stats")).cancelled === 7) break;
		await new Promise((done) => setTimeout(done, 50));
	}
	assert.equal((await s.call("GET", "/v1/queues/build/stats")).ready, 1);
});

test("a list shows the first bytes of payloads, and how far it came", { skip }, async (t) => {
	const s = await server(t);
	const long = await s.create("mail", { to: "ada", text: "é".repeat(200) });
	await s.call("POST", "/v1/tasks:batch", {
		tasks: Array.from({ length: 149 }, (_, n) => ({ queue: "mail", payload: { n } })),
	});
	const { tasks } = await s.call("GET", "/v1/tasks?limit=100&head=256");
	const page = await open(t, s);
	await page.setViewportSize({ width: 1600, height: 800 });
	await page.goto(`${s.url}/ui/default/tasks?order=asc`);
	const row = (/** @type {string} */ id) => page.locator("tbody tr").filter({ hasText: id.slice(-6) });
	await row(long)
		.getByText(/^\{"to":"ada","text":"é+…$/)
		.waitFor();
	await row(tasks[1].id).getByText(tasks[1].head, { exact: true }).waitFor();
	const time = await page.evaluate((at) => {
		const d = new Date(at);
		return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
	}, tasks[99].created_at);
	await page.getByText(new RegExp(`^100 shown so far up to \\d{4}-\\d\\d-\\d\\d ${time} `)).waitFor();
	// A row that is read again keeps them.
	await s.claim("mail");
	const claimed = row(long).filter({ hasText: "running" });
	await claimed.getByText(/^\{"to":"ada"/).waitFor();
});
