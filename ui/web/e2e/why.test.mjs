// Why a task is where it is: each reason is produced once, and found on the page of its task with what it is about and who holds it up.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, open, server, skip, worker } from "./rig.mjs";

after(closeBrowser);

/** @param {import("./rig.mjs").Server} s @param {any} task @param {string} how @param {Record<string, unknown>} [body] */
const settle = (s, task, how, body = {}) =>
	s.call("POST", `/v1/tasks/${task.id}/${how}`, { token: task.token, ...body });

/**
 * Wants the page of a task to have a line with the code and with all the texts.
 * @param {import("playwright-core").Page} page @param {import("./rig.mjs").Server} s @param {string} id @param {string} code @param {(string | RegExp)[]} texts
 */
async function says(page, s, id, code, ...texts) {
	await page.goto(`${s.url}/ui/default/tasks/${id}`);
	let line = page.locator(".why li").filter({ has: page.getByText(code, { exact: true }) });
	for (const text of texts) line = line.filter({ hasText: text });
	await line.waitFor();
}

test("each reason is named, with what it is about and who holds the task up", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	const me = (await s.call("GET", `/v1/tasks/${await s.create("who", 1)}`)).creator;
	const page = await open(t, s);

	await says(page, s, await s.create("later", 1, { delay: "1h" }), "delay", /it runs in \d/);

	const failed = await s.create("retry", 1);
	await settle(s, await s.claim("retry", "w-r"), "fail", { error: { code: "E", message: "no" }, retry_after: "1h" });
	await says(page, s, failed, "retry", "w-r", "1 of 5 failures", /comes in \d/);

	const snoozed = await s.create("snooze", 1);
	await settle(s, await s.claim("snooze", "w-s"), "snooze", { delay: "1h" });
	await says(page, s, snoozed, "snooze", "w-s put it off", /comes in \d/);

	const first = await s.create("alone", 1);
	await says(page, s, first, "next", "queue alone");
	await says(page, s, first, "no_worker", "No worker takes tasks of queue alone");
	const second = await s.create("alone", 2);
	await says(page, s, second, "behind", "1 task goes before it", "queue alone", first.slice(-6));
	await page.getByRole("link", { name: first.slice(-6) }).click();
	await page.waitForURL(new RegExp(first));

	await s.call("POST", "/v1/queues/alone:pause", { reason: "deploy of 12" });
	await says(page, s, first, "paused", "Queue alone is paused", me, "deploy of 12");
	await accessible(page, "reasons");

	await s.create("quiet", 0);
	await s.claim("quiet", "w-q");
	await s.call("POST", "/v1/workers/w-q:quiet", { on: true });
	await says(page, s, await s.create("quiet", 1), "no_worker", "All workers of queue quiet are quiet", "w-q");

	await worker(t, s, { id: "w-k", queue: "kinds", kinds: ["other"], slots: 0 });
	await says(page, s, await s.create("kinds", 1), "no_handler", "queue kinds", "kind kinds.run", "w-k");

	await worker(t, s, { id: "w-f", queue: "full", kinds: [], slots: 1 });
	const held = await s.create("full", 1);
	await says(page, s, held, "running", "w-f holds it", /its lease ends in/);
	await says(page, s, await s.create("full", 2), "no_slot", "All 1 slot of", "queue full", "w-f");

	await s.call("POST", `/v1/tasks/${held}/cancel`, { reason: "not wanted" });
	await says(page, s, held, "stopping", `${me} asked for its cancel`, "not wanted", "w-f was told to stop");

	await s.call("POST", `/v1/tasks/${second}/cancel`, { reason: "not wanted either" });
	await says(page, s, second, "ended", "The task is cancelled", me, "not wanted either");
	const fatal = await s.create("fatal", 1);
	await settle(s, await s.claim("fatal", "w-x"), "fail", { error: { code: "E", message: "no" }, fatal: true });
	await says(page, s, fatal, "ended", "(fatal)", "w-x had it last");
});

test("each limit is named, with what it is about and who has what it lets run", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const page = await open(t, s);
	/** Makes two tasks of a queue with limits, gives the first one out, and returns both. @param {string} queue @param {Record<string, unknown>} config @param {Record<string, unknown>} [more] @returns {Promise<[string, string]>} */
	const pair = async (queue, config, more) => {
		await s.call("PUT", `/v1/queues/${queue}`, config);
		const first = await s.create(queue, 1, more);
		await s.claim(queue, `w-${queue}`);
		return [first, await s.create(queue, 2, more)];
	};
	const end = (/** @type {string} */ id) => id.slice(-6);

	const [a, lane] = await pair("lane", { per_key: { concurrency: 1 } }, { key: "ann" });
	await says(page, s, lane, "lane_limit", "the line of key ann", "(1)", end(a));
	await page.locator(".why").getByRole("link", { name: "Limits" }).click();
	await page.waitForURL(/queues\/lane\/limits\?prefix=ann/);
	await page.getByRole("row", { name: /^ann/ }).getByText("its limit of 1").waitFor();

	const [b, full] = await pair("several", { concurrency: 1 });
	await says(page, s, full, "queue_limit", "queue several", "(1)", end(b));
	await accessible(page, "a limit of a queue");
	await page
		.locator(".why")
		.getByRole("link", { name: end(b) })
		.click();
	await page.waitForURL(new RegExp(b));

	const [, fast] = await pair("fast", { rate: { limit: 1, per: "1h" } });
	await says(page, s, fast, "rate", "Queue fast", "rate of 1", /the next one goes in \d/);
	const [, keyed] = await pair("keyed", { per_key: { rate: { limit: 1, per: "1h" } } }, { key: "bob" });
	await says(page, s, keyed, "rate", "key bob", "rate of 1", /the next one goes in \d/);

	const [, crowd] = await pair("crowd", { max_workers: 1 });
	await says(page, s, crowd, "max_workers", "queue crowd", "(1)", "w-crowd");

	const [first, strict] = await pair("strict", { order: "strict" }, { key: "cat" });
	await says(page, s, strict, "order", "the line of key cat", "has not ended", end(first));

	await s.call("POST", "/v1/queues/lane/keys/dan:pause", { reason: "their server is down" });
	const dan = await s.create("lane", 1, { key: "dan" });
	await says(page, s, dan, "paused", "Key dan is paused", "their server is down");
	await page.locator(".why").getByRole("link", { name: "Limits" }).click();
	await page.getByRole("row", { name: /^dan/ }).getByText("their server is down").waitFor();
});

test("what the server itself holds up is named", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	const id = await s.create("mail", 1);
	await s.call("POST", "/v1/tasks:claim", { queues: ["mail"], max: 1, worker: "w-1", lease: "1h" });
	const waits = await s.create("mail", 2);
	await s.stop();
	s.flags.push("--disk-reserve", "1000000000000000"); // more than any disk has
	await s.start();
	const page = await open(t, s);
	const { node } = await s.call("GET", "/v1/status");
	await says(page, s, id, "disk_full", `Node ${node}`, "no room on its disk");
	// A cluster without a majority is more than a test in a browser can start; its answer is put into that of the server.
	await page.route("**/v1/tasks/*/why*", async (r) => {
		const response = await r.fetch();
		const why = await response.json();
		const unled = { code: "partition_unled", text: "No node leads partition 0: nothing of it changes.", object: "0" };
		await r.fulfill({ response, json: { ...why, reasons: [unled, ...why.reasons] } });
	});
	await says(page, s, waits, "partition_unled", "No node leads partition 0");
	assert.equal(await page.locator(".why li code").first().innerText(), "partition_unled");
});
