import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, open, server, skip } from "./rig.mjs";

after(closeBrowser);

const hostile = "<img src=x onerror=document.title=1> 550 mailbox unavailable";

/** Creates tasks of a queue and lets each fail for good. @param {import("./rig.mjs").Server} s @param {string} queue @param {number} n */
async function dead(s, queue, n) {
	for (let i = 0; i < n; i++) {
		await s.create(queue, { to: "ada", n: i });
		const { task, id = task?.id, token } = await s.claim(queue);
		await s.call("POST", `/v1/tasks/${id}/fail`, {
			token,
			fatal: true,
			error: { code: "SMTP", message: hostile, stack: `mail.send\n  smtp.go:${i}` },
		});
	}
}

test("a queue is paused and goes on, and the page shows it", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	const page = await open(t, s, "default/queues/mail");
	await page.getByText("gives out tasks").waitFor();
	await page.getByRole("button", { name: "Pause ▾" }).click();
	await page.getByRole("menuitem", { name: "for 1 hour" }).click();
	await page
		.getByText(/paused/)
		.first()
		.waitFor();
	const { paused } = await s.call("GET", "/v1/queues/mail/stats");
	assert.ok(Date.parse(paused.until) > Date.parse(paused.since), "it goes on by itself");
	await page.getByRole("button", { name: "Undo" }).click();
	await page.getByText("gives out tasks").waitFor();
	assert.equal((await s.call("GET", "/v1/queues/mail/stats")).paused, undefined);

	await page.getByRole("button", { name: "Pause ▾" }).click();
	await page.getByRole("menuitem", { name: "with a reason…" }).click();
	await page.getByLabel(/Reason/).fill("deploy");
	await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
	await page.getByText(/: deploy/).waitFor();
	await page.getByRole("button", { name: "Resume" }).click();
	await page.getByText("gives out tasks").waitFor();
});

test("settings that two changed are merged, and what both changed is chosen", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	await s.call("PUT", "/v1/queues/mail", { max_attempts: 5, lease: "1m" });
	const page = await open(t, s, "default/queues/mail/settings", { allowed: [412] });
	await page.getByLabel("failures").first().fill("8");
	await page.getByLabel("aging").fill("not a time");
	assert.ok(await page.getByRole("button", { name: /Review/ }).isDisabled(), "a mistake is not sent");
	await page.getByLabel("aging").fill("120s");
	await page.getByRole("button", { name: "Review 2 changes…" }).click();
	// Another changes one of them, and something else, while the difference is read.
	await s.call("PUT", "/v1/queues/mail", { max_attempts: 7, lease: "1h" });
	await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
	const merge = page.getByRole("dialog", { name: /meanwhile/ });
	await merge.waitFor();
	await accessible(page, "the merge");
	await merge.getByLabel(/failures: which one/).selectOption("theirs");
	assert.equal((await s.call("GET", "/v1/queues/mail")).version, "2", "nothing was changed yet");
	await merge.getByRole("button", { name: "Send merged" }).click();
	await merge.waitFor({ state: "detached" });
	const now = await s.call("GET", "/v1/queues/mail");
	assert.deepEqual([now.version, now.max_attempts, now.lease, now.aging], ["3", 7, "3600s", "120s"]);
	assert.equal(await page.getByLabel("failures").first().inputValue(), "7");
});

test("a redrive counts first, wants the count typed, sends one request, and is followed", { skip }, async (t) => {
	const s = await server(t);
	await dead(s, "mail", 3);
	const page = await open(t, s, "default/dead");
	/** @type {string[]} */
	const jobs = [];
	page.on("request", (r) => {
		if (r.method() === "POST" && r.url().includes("/v1/bulk") && !r.postData()?.includes("dry_run"))
			jobs.push(r.postData() ?? "");
	});
	await page.getByRole("button", { name: "Redrive…" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByText("3 tasks match").waitFor();
	const go = dialog.getByRole("button", { name: "Redrive" });
	await dialog.getByLabel(/Type/).fill("4");
	assert.ok(await go.isDisabled(), "the wrong count keeps it from being sent");
	await accessible(page, "the dialog of a redrive");
	await dialog.getByLabel(/Reason/).fill("the relay is back");
	await dialog.getByLabel(/Type/).fill("3");
	await go.dblclick();
	await dialog.getByText("3 / 3").waitFor();
	assert.equal(jobs.length, 1, "a double click sends one request");
	await dialog.getByRole("link").click();
	await page.getByRole("heading", { level: 1, name: /done/ }).waitFor();
	await page.getByText("the relay is back").waitFor();
	await accessible(page, "a job");
	const q = await s.call("GET", "/v1/queues/mail/stats");
	assert.deepEqual([q.dead, q.ready], [0, 3]);
	const { jobs: list } = await s.call("GET", "/v1/bulk");
	assert.deepEqual([list.length, list[0].matched, list[0].done], [1, 3, 3], "the dry run equals the job's count");
});

test("errors that are alike are one row, shown as text and next to each other", { skip }, async (t) => {
	const s = await server(t);
	await dead(s, "mail", 2);
	const page = await open(t, s, "default/dead");
	const row = page.getByRole("row", { name: /550 mailbox/ });
	await row.waitFor();
	assert.equal(await row.count(), 1);
	await page.keyboard.press("j");
	await page.keyboard.press("e");
	await page.getByText("smtp.go:1").waitFor();
	await page.getByLabel("next to").selectOption({ index: 1 });
	await page.locator("del", { hasText: "smtp.go:1" }).waitFor();
	await page.locator("ins", { hasText: "smtp.go:0" }).waitFor();
	await page.locator("del", { hasText: '"n": 1' }).waitFor();
	assert.match(await page.title(), /Dead letters/, "what a worker reported ran no script");
	assert.equal(await page.locator("main img").count(), 0);
	await accessible(page, "dead letters");
	await page.getByRole("button", { name: "kind", exact: true }).click();
	await page.getByRole("row", { name: /mail\.run/ }).waitFor();
	assert.match(page.url(), /group=kind/, "the address is the state");
});

test("a worker is shown with what it has in hand, and can be quieted", { skip }, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "default/workers");
	await page.getByText(/No worker is connected/).waitFor();
	await accessible(page, "no workers");
	const id = await s.create("mail", {});
	await s.claim("mail", "w-7 <b>");
	const row = page.getByRole("row", { name: /w-7 <b>/ });
	await row.waitFor();
	await page.keyboard.press("j");
	await page.keyboard.press("e");
	await page.getByRole("link", { name: `…${id.slice(-6)}` }).waitFor();
	await page.getByRole("button", { name: "Quiet" }).click();
	await row.getByText("quiet").waitFor();
	const { workers } = await s.call("GET", "/v1/workers");
	assert.equal(workers[0].quiet, true);
	await accessible(page, "workers");
});

test("cells of the queues change in place, and the order stays until it is asked for", { skip }, async (t) => {
	const s = await server(t);
	for (const q of ["alpha", "beta", "beta"]) await s.create(q, {});
	const page = await open(t, s, "default/queues?sort=ready");
	const names = () => page.locator("tbody th").allInnerTexts();
	await page.getByRole("row", { name: /beta 2/ }).waitFor();
	assert.deepEqual(await names(), ["beta", "alpha"]);
	for (let i = 0; i < 3; i++) await s.create("alpha", {});
	await page.getByRole("row", { name: /alpha 4/ }).waitFor();
	assert.deepEqual(await names(), ["beta", "alpha"], "rows do not move by themselves");
	await s.create("gamma", {});
	await page.getByRole("button", { name: "1 newer, show" }).click();
	await page.getByRole("row", { name: /gamma/ }).waitFor();
	assert.deepEqual(await names(), ["alpha", "beta", "gamma"]);
	await accessible(page, "queues");

	await page.getByLabel("Mark alpha").click();
	await page.getByLabel("Mark beta").click();
	await page.getByRole("button", { name: "Pause…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
	await page.getByText("Paused alpha, beta").waitFor();
	await page.getByRole("button", { name: "paused", exact: true }).click();
	await page.getByRole("row", { name: /gamma/ }).waitFor({ state: "detached" });
	assert.deepEqual(
		(await names()).map((n) => n.split(/\s/)[0]),
		["alpha", "beta"],
	);
});

test("a task goes as it was typed, and a queue goes when its name was typed", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	const page = await open(t, s, "default/queues/mail");
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "New task…" }).click();
	const payload = '{"n":9007199254740993,"b":1,"a":-0}';
	await page.getByLabel(/Payload/).fill(payload);
	await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
	await page.waitForURL(/\/tasks\/\w{26}/);
	const id = /** @type {string} */ (/\/tasks\/(\w{26})/.exec(page.url())?.[1]);
	const stored = await fetch(`${s.url}/v1/tasks/${id}/payload`, { headers: { Authorization: `Bearer ${s.token}` } });
	assert.equal(await stored.text(), payload);

	await page.goto(`${s.url}/ui/default/queues/mail`);
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "Delete…" }).click();
	const dialog = page.getByRole("dialog");
	const go = dialog.getByRole("button", { name: "Delete the queue" });
	await dialog.getByLabel(/Type/).fill("mail");
	assert.ok(await go.isDisabled(), "tasks that have not ended are named first");
	await dialog.getByLabel(/have not ended/).check();
	await go.click();
	await page.getByRole("heading", { level: 1, name: "Queues" }).waitFor();
	assert.deepEqual((await s.call("GET", "/v1/queues")).queues, []);
});

test("the overview names what needs a person, and leads there", { skip }, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	await s.call("POST", "/v1/queues/mail:pause", { reason: "deploy" });
	const page = await open(t, s, "default/overview");
	await page.locator("main li", { hasText: /Paused by/ }).waitFor();
	await page.getByRole("link", { name: "mail" }).waitFor();
	await accessible(page, "the overview");
	await page.getByRole("link", { name: "Queue", exact: true }).click();
	await page.getByRole("heading", { level: 1, name: /mail/ }).waitFor();
});

test("a job that runs tells when it will be done", { skip }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/tasks:batch", { tasks: Array.from({ length: 500 }, () => ({ queue: "mail" })) });
	const { job } = await s.call("POST", "/v1/bulk", { action: "cancel", filter: { queue: "mail" }, rate: 1 });
	const page = await open(t, s, `default/bulk/${job.id}`);
	await page.getByText(/about [\d hms]+ left/).waitFor();
	await page.goto(`${s.url}/ui/default/bulk`);
	await page
		.getByRole("row", { name: /running/ })
		.getByText(/^in \d/)
		.waitFor();
});
