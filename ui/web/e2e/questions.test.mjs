// The questions that people come with. Each has a scenario on a real server, and its answer is on the named screen after at most three
// actions: a click, a shortcut, or a text that is typed and sent.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, open, server, settled, skip, wide, workTree } from "./rig.mjs";

after(closeBrowser);

/** Tasks that are there besides. */
const many = wide ? 100_000 : 500;

/** @param {import("./rig.mjs").Server} s @param {any} a @param {string} how @param {object} [body] */
const settle = (s, a, how, body = {}) => s.call("POST", `/v1/tasks/${a.id}/${how}`, { token: a.token, ...body });

test("each question has its answer within three actions", { skip, timeout: 900_000 }, async (t) => {
	const s = await server(t);
	for (let i = 0; i < many; i += 500)
		await s.call("POST", "/v1/tasks:batch", {
			tasks: Array.from({ length: 500 }, (_, k) => ({
				queue: `bulk-${k % 5}`,
				kind: "bulk.run",
				payload: { n: i + k },
				labels: { n: String(i + k) },
			})),
		});
	// What happened: a queue that is paused, one that broke with a deploy, one that nobody serves, and a task that changed things.
	await s.call("POST", "/v1/repos", { name: "app" });
	await s.call("PUT", "/v1/collections/people", {
		schema: [
			{ name: "role", type: "keywords", gate: "role" },
			{ name: "years", type: "int" },
		],
	});
	const points = ["welder", "driver"].map((role, i) => ({
		id: `w${i}`,
		payload: { text: `mig ${role}`, role: [role], years: i },
	}));
	await s.call("POST", "/v1/collections/people/points:upsert", { points });
	const { git, remote } = workTree(s);
	git("commit", "-q", "--allow-empty", "-m", "one");
	const one = git("rev-parse", "HEAD");
	git("commit", "-q", "--allow-empty", "-m", "two");
	const two = git("rev-parse", "HEAD");
	git("push", "-q", remote, `${one}:refs/heads/main`, `${two}:refs/heads/next`);
	const paused = await s.create("thumb", { n: 1 });
	await s.call("POST", "/v1/queues/thumb:pause", { reason: "the resizer is being deployed" });
	await s.call("PUT", "/v1/keyspaces/sent", { writers: true });
	const order = await s.create("ship", { order: 7 }, { labels: { order: "7" }, kind: "ship.order" });
	await settle(s, await s.claim("ship", "w-ship"), "complete", {
		effects: {
			ops: [
				{ kv_put: { keyspace: "sent", key: "order/7", value: "ada" } },
				{ kv_put: { keyspace: "sent", key: "latest", value: "7" } },
				{
					ref_transaction: { repo: "app", changes: [{ kind: "update", name: "refs/heads/main", old: one, new: two }] },
				},
			],
		},
	});
	const held = await s.create("build", {});
	await s.claim("build", "w-build");
	for (let i = 0; i < 3; i++) {
		await s.create("mail", { i });
		await settle(s, await s.claim("mail", "w-mail"), "fail", {
			fatal: true,
			error: { code: "SMTP", message: "550 mailbox unavailable", stack: "mail.send" },
		});
	}

	const page = await open(t, s);
	let actions = 0;
	const act = (/** @type {Promise<unknown>} */ done) => {
		actions++;
		return done;
	};
	const key = async (/** @type {string} */ keys) => {
		for (const k of keys.split(" ")) await page.keyboard.press(k);
	};
	const filter = async (/** @type {string} */ text) => {
		await page.getByRole("combobox", { name: "Filter" }).fill(text);
		await page.keyboard.press("Enter");
	};
	const main = page.locator("main");
	const see = (/** @type {string | RegExp} */ text) => main.getByText(text).first().waitFor();
	/** @param {string} question @param {RegExp} screen @param {() => Promise<unknown>} answer */
	const ask = async (question, screen, answer) => {
		await page.goto(`${s.url}/ui/default/overview`);
		await settled(page);
		await page.waitForFunction(() => document.querySelector("main table"));
		actions = 0;
		const begin = Date.now();
		await answer();
		assert.match(new URL(page.url()).pathname + new URL(page.url()).search, screen, question);
		assert.ok(actions <= 3, `${question}: ${actions} actions`);
		t.diagnostic(`${question} ${actions} actions, ${Date.now() - begin} ms`);
	};
	const tail = (/** @type {string} */ id) => `…${id.slice(-6)}`;

	await ask("Is anything wrong right now?", /overview$/, () => see(/paused by/i));
	await ask("Why is my task not running?", /tasks\/\w{26}$/, async () => {
		await act(page.keyboard.press("ControlOrMeta+k"));
		await page.getByRole("combobox", { name: "Queue, place, or id of a task" }).fill(paused);
		await act(page.keyboard.press("Enter"));
		await main.getByRole("region", { name: "Why it waits" }).getByText("the resizer is being deployed").waitFor();
	});
	await ask("What did this task change?", /effects$/, async () => {
		await act(page.keyboard.press("ControlOrMeta+k"));
		await page.getByRole("combobox", { name: "Queue, place, or id of a task" }).fill(order);
		await act(page.keyboard.press("Enter"));
		await page.waitForURL(/\/tasks\//);
		await settled(page);
		await act(page.keyboard.press("3"));
		const card = main.getByRole("region", { name: "One commit" });
		await card.getByRole("link", { name: "sent/order/7" }).waitFor();
		await card.getByText("refs/heads/main").waitFor();
	});
	await ask("Who holds the lease, until when, with which token?", /workers/, async () => {
		await act(key("g w"));
		await page.getByRole("row", { name: /w-build/ }).waitFor();
		await act(
			page
				.getByRole("row", { name: /w-build/ })
				.locator("th")
				.click(),
		);
		await main.getByRole("link", { name: tail(held) }).waitFor();
		await see(/lease/);
	});
	await ask("What is stuck, since when?", /queues\?sort=oldest/, async () => {
		await act(key("g q"));
		await page.getByRole("heading", { level: 1, name: /Queues/ }).waitFor();
		await act(main.getByRole("button", { name: "oldest" }).first().click());
		await page.waitForURL(/sort=oldest/);
		const first = main.locator("tbody tr[data-index]").first();
		await first.getByText("bulk-").waitFor();
		await first.locator("time").first().waitFor();
	});
	await ask("What broke after the deploy, and how do I run it again?", /dead$/, async () => {
		await act(key("g d"));
		await page.getByRole("row", { name: /SMTP 550 mailbox unavailable/ }).waitFor();
		await act(
			page
				.getByRole("row", { name: /SMTP 550/ })
				.getByRole("button", { name: "Redrive…" })
				.click(),
		);
		await page.getByRole("dialog").getByText("3 tasks match").waitFor();
	});
	await ask("Where is the task of order 7?", /tasks\?q=label.order:7$/, async () => {
		await act(key("g t"));
		await settled(page);
		await act(filter("label.order:7"));
		await page.waitForURL(/label\.order:7/);
		// A filter without an index looks at 10,000 at a time, and goes on when it is told to.
		for (;;) {
			const found = main.getByRole("link", { name: tail(order) });
			const more = main.getByRole("button", { name: "Keep looking" });
			await found.or(more).first().waitFor();
			if (await found.count()) break;
			assert.ok(wide, "few tasks are looked at in one go");
			await more.click();
			await settled(page);
		}
	});
	await ask("Is the cluster healthy; may I restart n2?", /cluster$/, async () => {
		await act(key("g c"));
		await see("one node by itself");
	});
	await ask("Who takes all the capacity?", /workers$/, async () => {
		await act(key("g w"));
		await page
			.getByRole("row", { name: /w-build/ })
			.getByText("build")
			.first()
			.waitFor();
	});
	await ask("Who changed this, and why?", /queues\/thumb$/, async () => {
		await act(main.getByRole("link", { name: "thumb" }).first().click());
		await see(/paused by dev/);
		await see(/: the resizer is being deployed/);
	});
	await ask("Who wrote this key?", /kv\/sent\?key=/, async () => {
		await act(key("g k"));
		await act(main.getByRole("table", { name: "Keyspaces" }).getByText("sent", { exact: true }).click());
		await act(main.getByRole("table", { name: "Keys of sent" }).getByText("latest").click());
		await see("written by task");
		await main.getByRole("link", { name: tail(order) }).waitFor();
	});
	await ask("Who moved this ref?", /activity$/, async () => {
		await act(key("g r"));
		await act(main.getByText("app", { exact: true }).first().click());
		await act(main.getByRole("link", { name: "Activity" }).click());
		const row = page.getByRole("row", { name: /refs\/heads\/main/ }).first();
		await row.getByRole("link", { name: tail(order) }).waitFor();
		await row.getByText(/token \d+/).waitFor();
	});
	await page.goto(`${s.url}/ui/default/search?collection=people&text=mig&roles=welder`);
	await settled(page);
	await ask("Why was this person found, and that one not?", /search/, async () => {
		await act(key("g s"));
		await page.getByLabel("Text", { exact: true }).fill("mig");
		await page.getByLabel("Gate: roles").fill("welder");
		await act(page.getByRole("button", { name: "Run" }).click());
		await page.getByRole("table", { name: "Results" }).getByText("w0").waitFor();
		await page.getByLabel("Why is").fill("w1");
		await act(page.getByRole("button", { name: "Ask" }).click());
		await see("Stopped at the gate: it has none of the roles.");
	});
});
