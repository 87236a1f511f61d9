// What comes of a write is said as it is: applied once, refused with nothing changed, or unknown until it is asked again.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
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
	skip,
	tab,
	wide,
	writeTokens,
} from "./rig.mjs";

after(closeBrowser);

/**
 * Puts a proxy before a server. While `cuts` matches a request, the server gets it and answers, and the proxy drops the answer with the
 * connection: all of it, after which a browser may send the request once more by itself, or the half of it.
 * @param {import("node:test").TestContext} t @param {import("./rig.mjs").Server} s
 */
async function proxy(t, s) {
	const state = {
		url: "",
		cuts: /** @type {RegExp | undefined} */ (undefined),
		half: false,
		bodies: /** @type {string[]} */ ([]),
	};
	const to = new URL(s.url);
	const p = createServer((req, res) => {
		/** @type {Buffer[]} */
		const parts = [];
		req.on("data", (d) => parts.push(d));
		req.on("end", () => {
			const body = Buffer.concat(parts);
			const up = request(
				{ host: to.hostname, port: to.port, method: req.method, path: req.url, headers: req.headers },
				(answer) => {
					if (state.cuts?.test(`${req.method} ${req.url}`)) {
						state.bodies.push(body.toString());
						if (state.half) res.writeHead(answer.statusCode ?? 500, answer.headers).write(" ");
						answer.resume();
						answer.on("end", () => setTimeout(() => req.socket.destroy(), state.half ? 50 : 0));
						return;
					}
					res.writeHead(answer.statusCode ?? 500, answer.headers);
					answer.pipe(res);
					res.on("close", () => up.destroy());
				},
			);
			up.on("error", () => req.socket.destroy());
			up.end(body);
		});
	});
	p.listen(0, "127.0.0.1");
	await once(p, "listening");
	t.after(() => {
		p.closeAllConnections();
		p.close();
	});
	state.url = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (p.address()).port}`;
	return state;
}

/** A task that is dead. @param {import("./rig.mjs").Server} s @param {string} queue */
async function dead(s, queue) {
	const id = await s.create(queue, {});
	const a = await s.claim(queue);
	assert.equal(a.id, id);
	await s.call("POST", `/v1/tasks/${id}/fail`, { token: a.token, fatal: true, error: { code: "X", message: "x" } });
	return id;
}

test("an answer that was cut after the commit: it is said, asked again, and happens once", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const via = await proxy(t, s);
	const id = await dead(s, "mail");
	await s.call("PUT", "/v1/kv/stock/keys/apples", "one");
	const page = await tab(t, await context(t), [404, 412]); // what a write finds that was done already
	await page.goto((await s.link()).replace(s.url, via.url));
	await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
	const dialog = page.getByRole("dialog");
	/** Sends with a cut answer, then asks again. @param {RegExp} what @param {() => Promise<unknown>} send @param {() => Promise<unknown>} again */
	const twice = async (what, send, again) => {
		via.cuts = what;
		via.bodies = [];
		via.half = !via.half;
		await send();
		await page
			.getByText(/it may have been applied/i)
			.first()
			.waitFor();
		assert.ok(via.bodies.length > 0);
		assert.equal(new Set(via.bodies).size, 1, `${what}: what a browser repeats is the same request`);
		via.cuts = undefined;
		await again();
		await page.getByText(/it may have been applied/i).waitFor({ state: "detached" });
		assert.equal(
			await page.getByText(/nothing was changed/i).count(),
			0,
			`${what}: what was done is not called refused`,
		);
	};
	const button =
		(/** @type {string} */ name, within = page.locator("body")) =>
		() =>
			within.getByRole("button", { name, exact: true }).click();

	// Without a dialog: the outcome offers to ask again.
	await go(page, `default/tasks/${id}`);
	await page.getByRole("button", { name: "Retry" }).waitFor();
	await twice(/retry/, button("Retry"), button("Ask again"));
	assert.deepEqual(
		[(await s.call("GET", `/v1/tasks/${id}`)).state, (await s.call("GET", `/v1/tasks/${id}`)).redrives],
		["ready", 1],
	);

	// A new task, which would be there twice.
	await go(page, "default/queues/mail");
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "New task…" }).click();
	await dialog.getByLabel(/Payload/).fill('{"n":1}');
	await twice(/POST \/v1\/tasks\?/, button("Create", dialog), async () => {
		await accessible(page, "an unknown outcome");
		await button("Ask again", dialog)();
		await page.waitForURL(/\/tasks\/\w{26}/);
	});
	assert.equal((await s.call("GET", "/v1/queues/mail/stats")).ready, 2, "the one from before, and one new task");

	// A cron that is run by hand, which would run twice.
	await s.call("PUT", "/v1/crons/now", { schedule: "@yearly", overlap: "allow", template: { queue: "later" } });
	await go(page, "default/crons/now");
	await page.getByRole("button", { name: "Trigger now" }).waitFor();
	await twice(/:trigger/, button("Trigger now"), button("Ask again"));
	assert.equal((await s.call("GET", "/v1/crons/now")).runs, 1);

	// A limiter, which holds for the version that was read, and a batch, which is sealed once.
	await s.call("PUT", "/v1/limiters/api", { concurrency: 2 });
	await go(page, "default/limits/api");
	await page.getByRole("button", { name: "Change…" }).click();
	await dialog.getByLabel("Cost at once").fill("3");
	const closed = async () => {
		await button("Ask again", dialog)();
		await dialog.waitFor({ state: "detached" });
	};
	await twice(/PUT \/v1\/limiters/, button("Save", dialog), closed);
	const { version, concurrency } = await s.call("GET", "/v1/limiters/api");
	assert.deepEqual([version, concurrency], ["2", 3]);
	const { id: batch } = (await s.call("POST", "/v1/batches", {})).batch;
	await go(page, `default/batches/${batch}`);
	await page.getByRole("button", { name: "Seal…" }).click();
	await twice(/:seal/, button("Seal", dialog), closed);
	assert.equal((await s.call("GET", `/v1/batches/${batch}`)).state, "finished");

	// A new batch, which would be there twice. A tag says where it is, so its id is not known before.
	await go(page, "default/batches");
	await page.getByRole("button", { name: "Open a batch…" }).click();
	await dialog.getByLabel("Tag").fill("order 7");
	await twice(/commit/, button("Open", dialog), async () => {
		await button("Ask again", dialog)();
		await page.waitForURL(/\/batches\/\w{26}/);
	});
	assert.equal((await s.call("GET", "/v1/batches")).batches.length, 2, "the one from before, and one new batch");

	// Settings, which hold for the version that was read.
	await go(page, "default/queues/mail/settings");
	await page.getByLabel("failures").first().fill("8");
	await page.getByRole("button", { name: "Review 1 change…" }).click();
	await twice(/PUT \/v1\/queues/, button("Change", dialog), async () => {
		await button("Ask again", dialog)();
		await dialog.waitFor({ state: "detached" });
	});
	const set = await s.call("GET", "/v1/queues/mail");
	assert.deepEqual([set.version, set.max_attempts], ["1", 8]);

	// A key at the revision that was read.
	await go(page, "default/kv/stock?key=apples");
	await page.getByRole("button", { name: "Edit…" }).click();
	await dialog.getByLabel("Value").fill("two");
	await twice(/commit/, button("Store", dialog), async () => {
		await button("Ask again", dialog)();
		await dialog.waitFor({ state: "detached" });
	});
	const put = await s.call("POST", "/v1/kv/stock/get", { keys: ["apples"] });
	assert.equal(put.results[0].value, "two");
	// Nobody has written it in between: the revision that the page shows is that of the one write.
	await page.getByText(`rev ${put.results[0].rev} `).waitFor();

	await page.getByRole("button", { name: "Delete…" }).click();
	await twice(/commit/, button("Delete", dialog), async () => {
		await button("Ask again", dialog)();
		await page.getByText("This key is not there").waitFor();
	});

	// Cancel with a reason, then delete: what is gone already is what was asked for.
	const one = await s.create("other", {});
	await go(page, `default/tasks/${one}`);
	await page.getByRole("button", { name: "Cancel…" }).click();
	await dialog.getByLabel(/Reason/).fill("not needed");
	await twice(/cancel/, button("Cancel the task", dialog), async () => {
		await button("Ask again", dialog)();
		await dialog.waitFor({ state: "detached" });
	});
	const cancelled = await s.call("GET", `/v1/tasks/${one}`);
	assert.deepEqual([cancelled.state, cancelled.cancel.reason], ["cancelled", "not needed"]);
	await page.getByRole("button", { name: "Delete…" }).click();
	await twice(/DELETE/, button("Delete", dialog), async () => {
		await button("Ask again", dialog)();
		await page.waitForURL(/\/tasks$/);
	});

	// Force release: the token of the next try is not retired by asking again.
	const held = await s.create("held", {});
	await s.claim("held", "w-1");
	await go(page, `default/tasks/${held}`);
	await page.getByRole("button", { name: "Force release…" }).click();
	via.cuts = /force-release/;
	await button("Force release", dialog)();
	await dialog.getByText(/It may have been applied/).waitFor();
	via.cuts = undefined;
	await s.claim("held", "w-2");
	await button("Ask again", dialog)();
	await dialog.waitFor({ state: "detached" });
	const { attempts } = await s.call("GET", `/v1/tasks/${held}/attempts`);
	assert.deepEqual(
		attempts.map((/** @type {any} */ a) => [a.worker, !!a.end]),
		[
			["w-1", true],
			["w-2", false],
		],
	);

	// A job about many tasks.
	for (let i = 0; i < 3; i++) await dead(s, "broken");
	await go(page, "default/dead?queue=broken");
	await page.getByRole("button", { name: "Redrive all of broken…" }).click();
	await dialog.getByLabel(/^Type/).fill("3");
	await twice(/POST \/v1\/bulk/, button("Redrive", dialog), async () => {
		await button("Ask again", dialog)();
		await dialog.getByText("3 / 3").waitFor();
	});
	assert.equal((await s.call("GET", "/v1/bulk")).jobs.length, 1);
	await button("Close", dialog)();

	// A queue with its tasks.
	await go(page, "default/queues/broken");
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "Delete…" }).click();
	await dialog.getByLabel(/Type/).fill("broken");
	await dialog.getByLabel(/have not ended/).check();
	await twice(/DELETE/, button("Delete the queue", dialog), async () => {
		await button("Ask again", dialog)();
		await page.getByRole("heading", { level: 1, name: "Queues" }).waitFor();
	});
});

test("a rate, a full disk, a right and a closed service each say their sentence, with the limit", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await s.create("mail", {});
	await s.call("PUT", "/v1/keyspaces/notes", { quota: { writes_per_second: 1 } });
	const page = await open(t, s, "default/kv/notes", { allowed: [401, 403, 404, 429, 502, 503, 507] });
	const dialog = page.getByRole("dialog");
	// 429: more writes a second than the keyspace may have.
	for (let refused = false; !refused; )
		await s.call("PUT", "/v1/kv/notes/keys/k", "v").catch((e) => {
			assert.match(String(e), /: 429 /);
			refused = true;
		});
	await page.getByRole("button", { name: "Put a key…" }).click();
	await dialog.getByLabel("Key", { exact: true }).fill("mine");
	await dialog.getByRole("textbox", { name: "Value" }).fill("1");
	for (let said = ""; !/RATE_LIMITED/.test(said); ) {
		// Others use up what there is until it is refused.
		await Promise.allSettled(Array.from({ length: 5 }, () => s.call("PUT", "/v1/kv/notes/keys/k", "v")));
		await dialog.getByRole("button", { name: "Store", exact: true }).click();
		await page.waitForFunction(() => !document.querySelector("dialog button:disabled"));
		said = (await dialog.count()) ? await dialog.innerText() : "gone";
		assert.notEqual(said, "gone", "the rate held nothing back");
		if (/RATE_LIMITED/.test(said)) {
			assert.match(said, /Nothing was changed/);
			assert.match(said, /the limit is writes_per_second|the limit is keyspace_writes/);
			assert.match(said, /Wait \d/);
		}
	}
	await accessible(page, "a rate that is used up");
	await dialog.getByRole("button", { name: "Keep" }).click();

	// 507: the disk has less room than is kept free.
	await s.stop();
	s.flags.push("--disk-reserve", "1000000000000000");
	await s.start();
	await page.goto(`${s.url}/ui/default/queues/mail`);
	await page.getByRole("button", { name: "More actions" }).click();
	await page.getByRole("menuitem", { name: "New task…" }).click();
	await dialog.getByRole("button", { name: "Create" }).click();
	await dialog.getByText("The server's disk is full (limit disk)").waitFor();
	await dialog.getByText("Nothing was changed.").waitFor();
	await accessible(page, "a full disk");
	await dialog.getByRole("button", { name: "Keep" }).click();
	// What makes room, or none, goes on.
	await page.getByRole("button", { name: "Pause ▾" }).click();
	await page.getByRole("menuitem", { name: "until it is resumed" }).click();
	await page
		.getByText(/paused by/)
		.first()
		.waitFor();

	// A service that is closed: the place is not offered, and an address of it says why nothing is there.
	await s.stop();
	s.flags.splice(-2, 2, "--services", "queue,ui");
	await s.start();
	await page.goto(`${s.url}/ui/default/kv/notes`);
	await page.getByText("the service is closed (--services)").first().waitFor();
	assert.equal(await page.getByRole("navigation", { name: "Places" }).getByRole("link", { name: "Keys" }).count(), 0);
	await accessible(page, "a closed service");
	for (const path of ["repos", "repos/app", "search", "kv"]) {
		await page.goto(`${s.url}/ui/default/${path}`);
		await page.getByText("the service is closed (--services)").first().waitFor();
	}

	// 403: a token of one queue asks for what is about all of them.
	const ada = made("ada", "--role", "admin", "--queue", "mail");
	const file = writeTokens(s.dir, [ada]);
	await s.stop();
	s.flags = ["--tokens", file];
	await s.start();
	await page.goto(`${s.url}/ui/`);
	await page.getByLabel("Token").fill(ada.token);
	await page.getByRole("button", { name: "Sign in" }).click();
	await page.getByRole("navigation", { name: "Places" }).waitFor();
	await page.goto(`${s.url}/ui/default/dead`);
	await page.getByText("Your token does not allow this.").first().waitFor();
	await page.getByText("PERMISSION_DENIED").first().waitFor();
	await accessible(page, "a right that is missing");
	await page.goto(`${s.url}/ui/default/queues/other`);
	await page.getByText("Your token does not allow this.").first().waitFor();

	// 429 at the door: tokens that do not fit are counted.
	const guess = await tab(t, await context(t), [401, 429]);
	await guess.goto(`${s.url}/ui/`);
	for (let i = 0, said = ""; !/RATE_LIMITED|Too many|wait/i.test(said); i++) {
		assert.ok(i < 30, "guesses are not counted");
		await guess.getByLabel("Token").fill(`mr_guess_${i}`);
		const answer = guess.waitForResponse((r) => r.url().includes("/v1/session") && r.request().method() === "POST");
		await guess.getByRole("button", { name: "Sign in" }).click();
		await answer;
		said = await guess.getByRole("alert").innerText();
	}
});

test("a job counts what its dry run counted, goes on after kill -9, and the page follows", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	const n = wide ? 500 : 150; // as many as one batch may have, at most
	await s.call("POST", "/v1/tasks:batch", { tasks: Array.from({ length: n }, () => ({ queue: "mail", payload: 1 })) });
	const page = await open(t, s, "default/tasks?q=queue:mail", { allowed: [502, 503] });
	const dialog = page.getByRole("dialog");
	await page.getByRole("button", { name: "Act on all tasks that match the filter" }).click();
	await page.getByRole("menuitem", { name: "Cancel…" }).click();
	await dialog.getByText(`${n} tasks match`).waitFor();
	await dialog.getByLabel("Tasks a second").fill(String(n / 5));
	await dialog.getByLabel(/^Type/).fill(String(n));
	await dialog.getByRole("button", { name: "Cancel tasks" }).click();
	await dialog.getByRole("link").click();
	await page.getByRole("heading", { level: 1, name: /running/ }).waitFor();
	const job = async () => (await s.call("GET", "/v1/bulk")).jobs[0];
	const before = await job();
	assert.equal(before.state, "running", "the job is under way when the server is killed");
	assert.equal(before.matched, n, "the dry run equals the job's count");
	await s.stop("SIGKILL");
	await page.locator(".live-failing").waitFor();
	await s.start();
	const meanwhile = await job();
	assert.ok(meanwhile.done < n, "it was in between");
	await page.getByText(`${n} / ${n}`).waitFor();
	await page.getByRole("heading", { level: 1, name: /done/ }).waitFor();
	const ended = await job();
	assert.deepEqual([ended.matched, ended.done, ended.refused ?? []], [n, n, []]);
	assert.equal((await s.call("GET", "/v1/queues/mail/stats")).cancelled, n);
	t.diagnostic(`${n} tasks: ${before.done} done before the kill, ${meanwhile.done} when it was back`);
});

test("a job is cancelled from its page, and tells what it refused by code", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/tasks:batch", { tasks: Array.from({ length: 20 }, () => ({ queue: "mail", payload: 1 })) });
	const page = await open(t, s);
	const begin = async (/** @type {number} */ rate) =>
		(await s.call("POST", "/v1/bulk", { action: "cancel", filter: { queue: "mail", state: "ready" }, rate })).job.id;
	const first = await begin(1);
	await page.goto(`${s.url}/ui/default/bulk/${first}`);
	await page.getByRole("button", { name: "Cancel the job" }).dblclick();
	await page.getByRole("heading", { level: 1, name: /cancelled/ }).waitFor();
	const stopped = await s.call("GET", `/v1/bulk/${first}`);
	assert.equal(stopped.state, "stopped");
	assert.ok(stopped.done < 20, "it did not go to its end");
	const left = (await s.call("GET", "/v1/queues/mail/stats")).ready;
	assert.equal(left, 20 - stopped.done, "what it had not done stays as it was");

	// What it found is done by others before its turn comes.
	const second = await begin(4);
	const { tasks } = await s.call("GET", "/v1/tasks?queue=mail&state=ready&limit=100");
	for (const task of tasks.reverse())
		await s.call("POST", `/v1/tasks/${task.id}/cancel`, {}).catch((e) => assert.match(String(e), / 409 /));
	await page.goto(`${s.url}/ui/default/bulk/${second}`);
	await page.getByRole("heading", { level: 1, name: /done/ }).waitFor();
	const job = await s.call("GET", `/v1/bulk/${second}`);
	assert.equal(job.refused.length, 1, JSON.stringify(job));
	const [{ code, count }] = job.refused;
	assert.equal(job.done + count, job.matched);
	await page.getByText(`refused ${count} (${code} ${count})`).waitFor();
	await page.getByText(`${job.done} / ${job.matched}`).waitFor();
	await accessible(page, "a job that refused some");
});
