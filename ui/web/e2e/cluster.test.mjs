// Pages of a cluster of three: what is written from any node, and what a page says while nodes come and go.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { cluster } from "./nodes-rig.mjs";
import { accessible, closeBrowser, context, narrow, open, skip, tab, usage } from "./rig.mjs";

after(closeBrowser);

/** Tests that take long run only where all are wanted. */
const wide = skip || narrow;

/** Signs in at a node with a token. @param {import("playwright-core").Page} page @param {import("./nodes-rig.mjs").ClusterNode} node @param {string} token */
async function enter(page, node, token) {
	await page.goto(`${node.url}/ui/`);
	await page.getByLabel("Token").fill(token);
	await page.getByRole("button", { name: "Sign in" }).click();
	await page.getByRole("navigation", { name: "Places" }).waitFor();
}

/** The row of a node on the page of the cluster. @param {import("playwright-core").Page} page @param {string} name */
const rowOf = (page, name) =>
	page.getByRole("table", { name: "Nodes" }).getByRole("row", { name: new RegExp(`^${name}\\b`) });

/** Does what is refused while no node leads, until it is done. @template T @param {() => Promise<T>} f @returns {Promise<T>} */
async function retried(f) {
	for (const ends = Date.now() + 60_000; ; )
		try {
			return await f();
		} catch (e) {
			if (Date.now() > ends) throw e;
			await new Promise((done) => setTimeout(done, 200));
		}
}

test("a page of a node that leads nothing writes", { skip }, async (t) => {
	const c = await cluster(t);
	const s = await c.follower();
	const id = await s.create("mail", { n: 1 });
	const { token } = await s.claim("mail");
	await s.call("POST", `/v1/tasks/${id}/fail`, { token, fatal: true, error: { message: "no" } });
	const page = await open(t, s, "default/queues/mail");
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

	await page.goto(`${s.url}/ui/default/tasks/${id}`);
	await page.getByRole("button", { name: "Retry" }).click();
	await page.getByRole("button", { name: "Cancel…" }).waitFor();
	assert.equal((await s.call("GET", `/v1/tasks/${id}?view=meta`)).state, "ready");
});

test("a node is drained, a shard moved and all are balanced from the page, which follows", {
	skip: wide,
	timeout: 300_000,
}, async (t) => {
	const c = await cluster(t);
	await c.home();
	const s = await c.follower();
	const page = await open(t, s, "cluster");
	const shards = page.getByRole("table", { name: "Shards" });
	await shards.waitFor();
	await accessible(page, "a cluster of three");
	const dialog = page.getByRole("dialog");
	const act = async (/** @type {string} */ node, /** @type {string} */ item, /** @type {string} */ verb) => {
		await page.getByRole("button", { name: `Actions on ${node}` }).click();
		await page.getByRole("menuitem", { name: item }).click();
		await accessible(page, `the dialog ${item}`);
		await dialog.getByRole("button", { name: verb, exact: true }).click();
		await dialog.waitFor({ state: "detached" });
	};
	const leads = (/** @type {string} */ name, /** @type {RegExp} */ which) =>
		rowOf(page, name).getByRole("cell").nth(1).getByText(which).waitFor();
	await act("n1", "Drain n1…", "Drain");
	await rowOf(page, "n1").getByText("drained").waitFor();
	await leads("n1", /^–$/);
	// What the dialog says follows the cluster too.
	const lead = await c.leader(0);
	await page.getByRole("button", { name: "Transfer shard 0…" }).click();
	await dialog.getByText(`${lead.name} holds new writes back`).waitFor();
	assert.ok(await dialog.getByRole("option", { name: "n1, drained" }).isDisabled(), "a drained node leads nothing");
	const other = c.nodes.find((n) => n !== lead && n.name !== "n1");
	await s.call("POST", "/v1/cluster/transfer", { shard: 0, to: other?.id });
	await dialog.getByText(`${other?.name} holds new writes back`).waitFor();
	await dialog.getByRole("button", { name: "Keep" }).click();
	await act("n1", "Let n1 lead again…", "Let it lead");
	await rowOf(page, "n1").getByText("drained").waitFor({ state: "detached" });

	await page.getByRole("button", { name: "Transfer shard 1…" }).click();
	await accessible(page, "the dialog of a transfer");
	await dialog.getByLabel("To").selectOption("n3");
	await dialog.getByRole("button", { name: "Transfer", exact: true }).click();
	await dialog.waitFor({ state: "detached" });
	await page.getByText("n3 leads shard 1").waitFor();
	await leads("n3", /1/);
	await page.getByRole("button", { name: "Balance…" }).click();
	await dialog.getByRole("button", { name: "Balance", exact: true }).click();
	await dialog.waitFor({ state: "detached" });
	await leads("n2", /^1$/);
	await leads("n3", /^–$/);

	// Without the scope there is neither the page nor its writes.
	const ada = await tab(t, await context(t), [401, 403, 404]);
	await enter(ada, s, c.tokens["ada"] ?? "");
	assert.equal(await ada.getByRole("link", { name: "Cluster" }).count(), 0);
	await ada.goto(`${s.url}/ui/cluster`);
	await ada.getByText("The namespace default has nothing yet").waitFor();
	await s.create("mail", {});
	await ada.getByText("Your partitions: all led").waitFor();
	for (const [path, body] of /** @type {[string, unknown][]} */ ([
		["members", { verb: "drain", node: 1 }],
		["transfer", { shard: 0, to: 3 }],
		["balance", undefined],
	])) {
		const status = await ada.evaluate(
			async ([path, body]) => {
				const session = await (await fetch("/v1/session", { headers: { "Millrace-Session": "hello" } })).json();
				const r = await fetch(`/v1/cluster/${path}`, {
					method: "POST",
					headers: { "Millrace-Session": session.csrf, "Content-Type": "application/json" },
					...(body ? { body: JSON.stringify(body) } : {}),
				});
				return r.status;
			},
			/** @type {[string, any]} */ ([path, body]),
		);
		assert.equal(status, 403, path);
	}
});

test("a page lives on where its leader is killed, and a write of an open dialog is applied once or said to be in doubt", {
	skip: wide,
	timeout: 300_000,
}, async (t) => {
	const c = await cluster(t);
	await c.home();
	const s = await c.follower();
	const ids = [];
	for (let n = 0; n < 4; n++) ids.push(await s.create("mail", { n }));
	const shard = await c.shardOf();
	const statuses = [502, 503, 504];
	const page = await open(t, s, "default/queues", { allowed: statuses });
	await page.locator(".live-live").waitFor();
	await page.getByRole("row", { name: /mail 4/ }).waitFor();

	// While the page is live: what happens afterwards is seen, without a reload.
	const first = await c.leader(shard);
	await first.stop("SIGKILL");
	const led = c.until(
		"another leads",
		(x) => x.shards.every((/** @type {any} */ y) => y.leader && y.leader !== first.id),
		s,
	);
	await led;
	await retried(() => s.create("mail", { n: 4 }));
	await page.getByRole("row", { name: /mail 5/ }).waitFor();
	assert.equal(await page.locator(".live-live").count(), 1, "the stream of a node that lives goes on");
	await first.start();
	await c.home();

	// While a dialog is open: its write is under way as the leader is killed.
	await page.goto(`${s.url}/ui/default/tasks/${ids[0]}`);
	await page.getByRole("button", { name: "Cancel…" }).click();
	const dialog = page.getByRole("dialog");
	const go = dialog.getByRole("button", { name: "Cancel the task" });
	await go.waitFor();
	/** @type {string[]} */
	const sent = [];
	page.on("request", (r) => {
		if (r.method() === "POST" && r.url().includes("/cancel")) sent.push(JSON.parse(r.postData() ?? "{}").request_id);
	});
	const second = await c.leader(shard);
	const killed = second.stop("SIGKILL");
	await go.click();
	await killed;
	// Refused and unknown both leave the dialog as it is, with the button that sends it again.
	for (;;) {
		const open = await dialog.count();
		if (!open) break;
		const again = dialog.getByRole("button", { name: /^(Ask again|Cancel the task)$/ });
		if ((await dialog.getByRole("alert").count()) && (await again.isEnabled().catch(() => false))) {
			const said = (await dialog.innerText().catch(() => "")) || "It may have been applied. Nothing was changed.";
			t.diagnostic(said.replaceAll("\n", " "));
			assert.match(said, /Nothing was changed\.|It may have been applied\./);
			await again.click();
		}
		await new Promise((done) => setTimeout(done, 100));
	}
	assert.equal(new Set(sent).size, 1, "asked again under the same id");
	t.diagnostic(`${sent.length} requests`);
	const task = await s.call("GET", `/v1/tasks/${ids[0]}?view=meta`);
	assert.equal(task.state, "cancelled");
	await page.getByText("cancelled").first().waitFor();
});

test("without a majority one signs in, pages say that they are stale, and writes what became of them", {
	skip: wide,
	timeout: 300_000,
}, async (t) => {
	const c = await cluster(t);
	await c.home();
	const s = await c.follower();
	const id = await s.create("mail", { n: 1 });
	await s.call("PUT", "/v1/keyspaces/notes", {});
	await s.call("PUT", "/v1/kv/notes/keys/plan", "a plan");
	const batch = (await s.call("POST", "/v1/batches", {})).batch.id;
	const bulk = (await s.call("POST", "/v1/bulk", { action: "prioritize", filter: { queue: "mail" } })).job.id;
	await s.call("PUT", "/v1/crons/nightly", { schedule: "@yearly", template: { queue: "mail" } });
	await s.call("PUT", "/v1/limiters/api", { concurrency: 2 });
	await s.call("POST", "/v1/repos", { name: "app" });
	await s.call("PUT", "/v1/collections/people", { schema: [{ name: "role", type: "keyword", gate: "role" }] });
	const page = await open(t, s, "cluster", { allowed: [502, 503, 504] });
	await page.getByText("n2").first().waitFor();
	const before = Date.now();
	for (const n of c.nodes) if (n !== s) await n.stop("SIGKILL");
	await page.getByText("Shard 0 has no leader").waitFor();
	t.diagnostic(`the page of the cluster tells it ${Date.now() - before} ms after the kills began`);
	for (const n of c.nodes) if (n !== s) await page.getByText(`${n.name} is not reached`).waitFor();
	await accessible(page, "a cluster without a majority");

	// Another person signs in, by a token and by a link.
	const late = await tab(t, await context(t), [401, 502, 503, 504]);
	await enter(late, s, c.token);
	await late.goto(`${s.url}/ui/default/queues`);
	await late.getByRole("row", { name: /mail/ }).waitFor();
	await late.getByText(`It is shown as ${s.name} had it`).waitFor();
	await accessible(late, "queues without a majority");
	const linked = await tab(t, await context(t), [401, 502, 503, 504]);
	await linked.goto(await s.link());
	await linked.getByRole("navigation", { name: "Places" }).waitFor();

	// Each page shows what this node has, and says so. None says why it failed.
	for (const [path, shown] of [
		["overview", "mail"],
		["queues", "mail"],
		["queues/mail/limits", "Weight"],
		["tasks", id.slice(-6)],
		[`tasks/${id}/timeline`, "mail"],
		[`tasks/${id}/logs`, "mail"],
		[`tasks/${id}/effects`, "mail"],
		["dead", "No attempt failed"],
		["bulk", "set the priority of"],
		[`bulk/${bulk}`, "set the priority of"],
		["crons", "nightly"],
		["crons/nightly", "nightly"],
		["limits", "api"],
		["limits/api", "api"],
		["batches", batch.slice(-6)],
		[`batches/${batch}`, "open"],
		["kv", "notes"],
		["kv/notes", "plan"],
		["repos", "app"],
		["repos/app", "app"],
		["search", "people"],
	]) {
		const begun = Date.now();
		await late.goto(`${s.url}/ui/default/${path}`);
		const main = late.getByRole("main");
		await main.getByText(shown).first().waitFor({ state: "attached", timeout: 20_000 });
		t.diagnostic(`${path} after ${Date.now() - begun} ms`);
		await late.getByText(`It is shown as ${s.name} had it`).waitFor();
		assert.equal(await main.getByRole("alert").count(), 0, `${path}: ${await main.innerText()}`);
	}

	// Writes.
	await late.goto(`${s.url}/ui/default/queues/mail`);
	await late.getByRole("button", { name: "Pause ▾" }).click();
	await late.getByRole("menuitem", { name: "until it is resumed" }).click();
	await late.getByText(/Pause mail: (nothing was changed|it may have been applied)/).waitFor();
	t.diagnostic(await late.locator(".toast.bad").first().innerText());
	await late.goto(`${s.url}/ui/default/tasks/${id}`);
	await late.getByRole("heading", { level: 1 }).getByText("ready").waitFor();
	await late.getByText(`It is shown as ${s.name} had it`).waitFor();
	await late.goto(`${s.url}/ui/default/kv/notes?key=plan`);
	await late.getByText("a plan").first().waitFor();
	await late.getByRole("button", { name: "Edit…" }).click();
	const dialog = late.getByRole("dialog");
	await dialog.getByLabel("Value").fill("another plan");
	await dialog.getByRole("button", { name: "Store", exact: true }).click();
	await dialog.getByText(/Nothing was changed\.|It may have been applied/).waitFor();
	t.diagnostic((await dialog.getByRole("alert").innerText()).replaceAll("\n", " "));
	await dialog.getByRole("button", { name: "Keep" }).click();

	// It goes on by itself once they are back.
	await Promise.all(c.nodes.filter((n) => n !== s).map((n) => n.start()));
	await c.home();
	await page.getByText("has no leader").first().waitFor({ state: "detached" });
	await late.goto(`${s.url}/ui/default/queues/mail`);
	await late.getByText("gives out tasks").waitFor();
	await late.getByRole("button", { name: "Pause ▾" }).click();
	await late.getByRole("menuitem", { name: "until it is resumed" }).click();
	await late.getByText("paused").first().waitFor();
});

test("a link is good at the node that made it, a session at all of them, and its end too", {
	skip: wide,
	timeout: 300_000,
}, async (t) => {
	const c = await cluster(t);
	const [one, two, three] = /** @type {[any, any, any]} */ (c.nodes);
	// The keys that nodes share are from this format on.
	await retried(() => one.call("POST", "/v1/cluster/finalize"));
	const browser = await context(t);
	const page = await tab(t, browser, [400, 401]);
	const link = await one.link();
	await page.goto(link.replace(one.url, two.url));
	await page
		.getByRole("alert")
		.getByText(/code: is of node 1, and good there alone/)
		.waitFor();
	await accessible(page, "the link of another node");
	await page.goto(link); // it was not used up
	await page.getByRole("navigation", { name: "Places" }).waitFor();
	await page.locator(".live-live").waitFor();

	// Each port has a cookie of its own here. Nodes of one address, such as behind a balancer, would share this one.
	const [cookie] = await browser.cookies();
	assert.ok(cookie);
	const { csrf } = await page.evaluate(async () => {
		const r = await fetch("/v1/session", { headers: { "Millrace-Session": "hello" } });
		return r.json();
	});
	const sent = async (/** @type {any} */ node, /** @type {string} */ method, /** @type {string} */ path) => {
		const name = cookie.name.replace(/\d+$/, new URL(node.url).port);
		const r = await fetch(`${node.url}${path}`, {
			method,
			headers: { Cookie: `${name}=${cookie.value}`, "Millrace-Session": csrf },
		});
		return r.status;
	};
	for (const node of [two, three])
		for (const ends = Date.now() + 60_000; (await sent(node, "GET", "/v1/queues?forward=1")) !== 200; )
			assert.ok(Date.now() < ends, `${node.name} never opens the session`);
	assert.equal(await sent(three, "POST", "/v1/sessions:end"), 204);
	// The page is told by the end of its stream.
	await page.getByLabel("Token").waitFor();
	assert.equal(await sent(one, "GET", "/v1/queues?forward=1"), 401);
});

test("a hundred streams over three nodes leave nothing when their tabs close", {
	skip: wide,
	timeout: 300_000,
}, async (t) => {
	const c = await cluster(t);
	for (let n = 0; n < 20; n++) await c.nodes[0]?.create(`queue-${n}`, { n });
	const figures = async (/** @type {string} */ what) => {
		const before = c.nodes.map(usage);
		const began = Date.now();
		await new Promise((done) => setTimeout(done, 10_000));
		const took = Date.now() - began;
		const of = c.nodes.map((n, i) => {
			const now = usage(n);
			return `${n.name} ${((100 * (now.cpu - (before[i]?.cpu ?? 0))) / took).toFixed(2)} % of a core, ${now.memory.toFixed(0)} MiB`;
		});
		t.diagnostic(`${what}: ${of.join("; ")}`);
	};
	await figures("no streams");
	// Some are of pages; the others ask as pages do. What belongs to a page ends with its tab.
	/** @type {import("playwright-core").BrowserContext[]} */
	const tabs = [];
	for (const n of c.nodes) {
		const browser = await context(t);
		tabs.push(browser);
		const page = await open(t, n, "default/queues", { context: browser });
		await page.locator(".live-live").waitFor();
	}
	const stop = new AbortController();
	for (let i = tabs.length; i < 100; i++) {
		const n = c.nodes[i % 3];
		const r = await fetch(`${n?.url}/v1/events?topics=overview,queues,workers`, {
			headers: { Authorization: `Bearer ${c.token}` },
			signal: stop.signal,
		});
		assert.equal(r.status, 200);
		void r.body?.pipeTo(new WritableStream()).catch(() => undefined);
	}
	const all = async () => (await Promise.all(c.nodes.map((n) => n.streams()))).reduce((a, b) => a + b, 0);
	// A page that lost its stream under load has opened another, and its node learns a little later that the first one ended.
	while ((await all()) !== 100) await new Promise((done) => setTimeout(done, 100));
	await figures("100 streams");
	for (const browser of tabs) for (const page of browser.pages()) await page.close();
	stop.abort();
	while ((await all()) > 0) await new Promise((done) => setTimeout(done, 100));
	await figures("after them");
});
