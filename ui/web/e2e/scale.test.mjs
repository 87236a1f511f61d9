import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, open, server, settled, skip, usage, workTree } from "./rig.mjs";

after(closeBrowser);

/** MILLRACE_UI_TASKS=100000 takes more tasks than the ordinary run. Times are told, and never judged. */
const tasks = Number(process.env["MILLRACE_UI_TASKS"] ?? 2000);
/** MILLRACE_UI_ROWS=1000000 takes more keys and refs. */
const rows = Number(process.env["MILLRACE_UI_ROWS"] ?? 3000);
const streams = Number(process.env["MILLRACE_UI_STREAMS"] ?? 100);

test("a list of many tasks keeps few rows in the page, and no request counts or scans", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	for (let i = 0; i < tasks; i += 500)
		await s.call("POST", "/v1/tasks:batch", {
			tasks: Array.from({ length: Math.min(500, tasks - i) }, (_, k) => ({
				queue: `q${k % 7}`,
				kind: k % 100 ? "common" : "rare",
				payload: { n: i + k },
				labels: { order: String(i + k) },
			})),
		});
	const page = await open(t, s);
	/** @type {number[]} */
	const looked = [];
	let requests = 0;
	page.on("response", async (r) => {
		if (!new URL(r.url()).pathname.startsWith("/v1/tasks")) return;
		requests++;
		const body = await r.json().catch(() => undefined);
		if (typeof body?.inspected === "number") looked.push(body.inspected);
	});
	const begin = Date.now();
	await page.goto(`${s.url}/ui/default/tasks`);
	await settled(page);
	await page.locator("tbody tr[data-index]").first().waitFor();
	t.diagnostic(`first page of ${tasks} tasks after ${Date.now() - begin} ms, ${requests} requests`);
	let most = 0;
	const pages = Math.min(100, Math.floor(tasks / 100) - 1);
	for (let i = 0; i < pages; i++) {
		await page.locator(".grid-box").evaluate((box) => box.scrollTo(0, box.scrollHeight));
		await page.waitForFunction(
			(n) => Number(document.querySelector("table.grid")?.getAttribute("aria-rowcount")) > n,
			(i + 1) * 100,
		);
		most = Math.max(most, await page.locator("tbody tr[data-index]").count());
	}
	const heap = await page.evaluate(() => /** @type {any} */ (performance).memory?.usedJSHeapSize);
	t.diagnostic(
		`${pages} pages in ${Date.now() - begin} ms, ${requests} requests, ${most} rows at most, heap ${Math.round(heap / 1048576)} MiB`,
	);
	assert.ok(most <= 60, `${most} rows are in the document`);
	// A filter without an index looks at what it says, and goes on when it is told to.
	await page.goto(`${s.url}/ui/default/tasks?q=kind:rare`);
	await settled(page);
	await page
		.getByText(/looked at/i)
		.first()
		.waitFor();
	assert.ok(looked.length > 0, "answers of a filter say how far they looked");
	assert.ok(Math.max(...looked) <= 10_000, `a request looked at ${Math.max(...looked)} records`);
});

/** Calls f for 0 to n - 1, eight at once. @param {number} n @param {(i: number) => Promise<unknown>} f */
async function eightAtOnce(n, f) {
	let next = 0;
	await Promise.all(
		Array.from({ length: 8 }, async () => {
			while (next < n) await f(next++);
		}),
	);
}

/** A number with leading zeros, so that names sort by it. @param {number} n */
const digits = (n) => String(n).padStart(7, "0");

test("many keys below one prefix are folded and paged, and none is counted", { skip, timeout: 900_000 }, async (t) => {
	const s = await server(t);
	const batch = 500;
	await eightAtOnce(rows / batch, (n) =>
		s.call("POST", "/v1/commit", {
			ops: Array.from({ length: batch }, (_, k) => {
				const i = n * batch + k;
				return { kv_put: { keyspace: "many", key: `all/${i % 300}/${digits(i)}`, value: "v" } };
			}),
		}),
	);
	const page = await open(t, s);
	const times = asked(page, "/v1/kv/");
	await page.goto(`${s.url}/ui/default/kv/many`);
	const keys = page.getByRole("table", { name: "Keys of many" });
	await keys.getByText(/all\/$/).click();
	await keys.getByText(/all\/0\/$/).waitFor();
	await page.getByText("200 here").waitFor();
	await page.getByRole("button", { name: "Next 200" }).click();
	await page.getByText("100 here").waitFor();
	// The first one of the second page.
	const at = Array.from({ length: 300 }, (_, i) => `${i}/`).sort()[200] ?? "";
	await keys.getByText(new RegExp(`all/${at}$`)).click();
	await keys.getByText(`all/${at}${digits(Number.parseInt(at, 10))}`).waitFor();
	assert.ok(times.length <= 6, `${times.length} requests`);
	t.diagnostic(`pages of ${rows} keys: ${times.join(", ")} ms`);
});

test("many refs are paged by cursor and found by prefix", { skip, timeout: 900_000 }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/repos", { name: "app" });
	const { git, remote } = workTree(s);
	git("commit", "-q", "--allow-empty", "-m", "one");
	const id = git("rev-parse", "HEAD");
	git("push", "-q", remote, `${id}:refs/heads/main`);
	const batch = Math.min(rows, 5000);
	await eightAtOnce(rows / batch, (n) =>
		s.call("POST", "/v1/commit", {
			ops: [
				{
					ref_transaction: {
						repo: "app",
						changes: Array.from({ length: batch }, (_, k) => ({
							kind: "create",
							name: `refs/heads/many/${digits(n * batch + k)}`,
							new: id,
						})),
					},
				},
			],
		}),
	);
	const page = await open(t, s);
	const times = asked(page, "/v1/repos/app/refs");
	await page.goto(`${s.url}/ui/default/repos/app`);
	const refs = page.getByRole("table", { name: "Refs of app" });
	await refs.getByText("refs/heads/main").first().waitFor();
	await page.getByRole("button", { name: /^Next / }).click();
	await refs.getByText("refs/heads/main").first().waitFor({ state: "detached" });
	const last = `refs/heads/many/${digits(rows - 1)}`;
	await page.getByRole("textbox", { name: "Prefix or glob of names, or a whole name" }).fill(last);
	await page.getByRole("button", { name: "Filter" }).click();
	await refs.getByText(last).click();
	await page
		.getByRole("table", { name: `Log of ${last}` })
		.getByText("{0}")
		.waitFor();
	t.diagnostic(`pages of ${rows} refs: ${times.join(", ")} ms`);
});

/** Returns a list that gets the milliseconds of each answer to a path. @param {import("playwright-core").Page} page @param {string} path */
function asked(page, path) {
	/** @type {number[]} */
	const times = [];
	page.on("requestfinished", (r) => {
		if (new URL(r.url()).pathname.startsWith(path)) times.push(Math.round(r.timing().responseEnd));
	});
	return times;
}

test("many streams are told of one change by one sampler, and leave nothing behind", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t, "--admin", "127.0.0.1:0");
	await s.create("mail", 1);
	const stop = new AbortController();
	const headers = { Authorization: `Bearer ${s.token}` };
	let told = 0;
	const readers = await Promise.all(
		Array.from({ length: streams }, async () => {
			const r = await fetch(`${s.url}/v1/events?topics=overview,queues`, { headers, signal: stop.signal });
			assert.equal(r.status, 200);
			return /** @type {ReadableStream<Uint8Array>} */ (r.body).getReader();
		}),
	);
	const follow = Promise.allSettled(
		readers.map(async (r) => {
			const decoder = new TextDecoder();
			let seen = "";
			for (;;) {
				const { done, value } = await r.read();
				if (done) return;
				seen = (seen + decoder.decode(value)).slice(-8192);
				if (seen.includes('"queue":"later"')) {
					told++;
					seen = "";
					return;
				}
			}
		}),
	);
	const before = usage(s).cpu;
	const begin = Date.now();
	if (process.env["MILLRACE_UI_STREAMS"]) await new Promise((done) => setTimeout(done, 20_000));
	t.diagnostic(
		`${streams} streams: ${usage(s).cpu - before} ms of processor time in ${Date.now() - begin} ms without a change`,
	);
	await s.create("later", 1);
	await follow;
	assert.equal(told, streams, "each was told of the new queue");
	stop.abort();
	const page = await open(t, s, "default/queues");
	await page.getByRole("row", { name: /later/ }).waitFor();
});
