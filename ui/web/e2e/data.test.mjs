import assert from "node:assert/strict";
import { after, test } from "node:test";
import { accessible, closeBrowser, open, server, settled, skip, workTree } from "./rig.mjs";

after(closeBrowser);

/** One red pixel. */
const png = Buffer.from(
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC",
	"base64",
);

/** @param {import("./rig.mjs").Server} s @param {string} keyspace @param {Buffer} key @param {string | Buffer} value */
const put = (s, keyspace, key, value) =>
	s.call("POST", "/v1/commit", {
		ops: [
			{ kv_put: { keyspace, key_base64: key.toString("base64"), value_base64: Buffer.from(value).toString("base64") } },
		],
	});

test("keys are paged, folded and opened, whatever bytes they have", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	for (let i = 0; i < 450; i += 90)
		await s.call("POST", "/v1/commit", {
			ops: Array.from({ length: 90 }, (_, n) => ({
				kv_put: { keyspace: "sent", key: `flat-${String(i + n).padStart(4, "0")}`, value: "v" },
			})),
		});
	for (let i = 0; i < 20; i++) await put(s, "sent", Buffer.from(`dir/${i}/a`), "{}");
	const odd = Buffer.from([0, 0xff, 0x2f, 0x5c, 0xc3]);
	const long = Buffer.alloc(16_384, 0xfe);
	await put(s, "odd", odd, "odd one");
	await put(s, "odd", Buffer.from("."), "a dot");
	await put(s, "odd", long, "long one");
	await put(s, "odd", Buffer.from("picture"), png);
	await put(
		s,
		"odd",
		Buffer.from("drawing"),
		'<svg xmlns="http://www.w3.org/2000/svg"><script>window.hit=1</script></svg>',
	);

	const page = await open(t, s, "default/kv");
	await page.getByRole("table", { name: "Keyspaces" }).getByText("470").waitFor();
	await page.goto(`${s.url}/ui/default/kv/sent`);
	const keys = page.getByRole("table", { name: "Keys of sent" });
	await keys.getByText("flat-0000").waitFor();
	await page.getByText("200 here").waitFor();
	await page.getByRole("button", { name: "Next 200" }).click();
	await keys.getByText("flat-0199").waitFor();
	await page.getByText("the next page is of an instant of its own").waitFor();
	await page.getByRole("button", { name: "First page" }).click();
	await keys.getByText("dir/").click();
	await keys.getByText("dir/19/").waitFor();
	assert.match(page.url(), /prefix=dir\/(&|$)/);
	assert.equal(await keys.getByText("dir/19/a").count(), 0, "what is below a prefix is folded");

	await page.goto(`${s.url}/ui/default/kv/odd?group=none`);
	const names = page.getByRole("table", { name: "Keys of odd" });
	await names.getByText("\\x00\\xff/\\\\\\xc3").click();
	await page.getByText("odd one").last().waitFor();
	await names.getByText(/^(\\xfe)+…$/).click();
	await page.getByText("key of 16 KiB").waitFor();
	await names.getByText(".", { exact: true }).click();
	await page.getByRole("region", { name: "Value of ." }).getByText("a dot").waitFor();
	await names.getByText("picture").click();
	await page.getByRole("img", { name: "Value of picture" }).waitFor();
	assert.match((await page.getByRole("img", { name: "Value of picture" }).getAttribute("src")) ?? "", /^blob:/);
	await names.getByText("drawing").click();
	await page.getByRole("region", { name: "Value of drawing" }).getByText("<script>").waitFor();
	assert.equal(await page.getByRole("img", { name: "Value of drawing" }).count(), 0, "a drawing is shown as text");
	assert.equal(await page.evaluate("window.hit"), undefined);
});

test("a key is put, edited over another's edit, and deleted; a range by its count", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/kv/stock/keys/apples", "one");
	for (let i = 0; i < 3; i++) await s.call("PUT", `/v1/kv/stock/keys/old%2F${i}`, "x");
	const page = await open(t, s, "default/kv/stock?key=apples", { allowed: [409, 412] });
	await page.getByRole("button", { name: "Edit…" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByLabel("Value").fill("mine");
	await s.call("PUT", "/v1/kv/stock/keys/apples", "theirs");
	await dialog.getByRole("button", { name: "Store", exact: true }).click();
	await dialog.getByText("Nothing was changed.").waitFor();
	await dialog.getByText("- theirs").waitFor();
	await accessible(page, "theirs and yours");
	assert.equal(await s.call("GET", "/v1/kv/stock/keys/apples"), "theirs");
	await dialog.getByRole("button", { name: "Store over theirs" }).click();
	await dialog.waitFor({ state: "detached" });
	assert.equal(await s.call("GET", "/v1/kv/stock/keys/apples"), "mine");

	await page.getByRole("button", { name: "Delete…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
	await page.getByText("This key is not there").waitFor();

	await page.goto(`${s.url}/ui/default/kv/stock?prefix=old/`);
	await page.getByRole("button", { name: "More of this keyspace" }).click();
	await page.getByRole("menuitem", { name: "Delete all keys that begin with old/…" }).click();
	const range = page.getByRole("dialog");
	await range.getByText("3 keys of stock are removed").waitFor();
	const go = range.getByRole("button", { name: "Delete", exact: true });
	assert.ok(await go.isDisabled(), "the count must be typed first");
	await range.getByLabel("Type 3 to go on").fill("4");
	assert.ok(await go.isDisabled(), "another count does not do");
	await range.getByLabel("Type 3 to go on").fill("3");
	await go.click();
	await page.getByText("No key begins with old/ here.").waitFor();
	assert.equal((await s.call("GET", "/v1/kv/stock")).items.length, 0);
});

test("a key leads to the task that wrote it, and to all of its commit", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/kv/sent/keys/early", "before");
	await s.call("PUT", "/v1/kv/plain/keys/k", "x");
	const page = await open(t, s, "default/kv/sent?key=early");
	const main = page.locator("main");
	const said = main.getByText(/written (by task|from outside)/);
	await main.getByRole("region", { name: "Value of early" }).getByText("before").waitFor();
	assert.equal(await said.count(), 0, "nothing is known, and nothing said");
	await page.getByRole("button", { name: "More of this keyspace" }).click();
	await page.getByRole("menuitem", { name: "Settings as JSON…" }).click();
	const dialog = page.getByRole("dialog");
	const settings = dialog.getByLabel("Settings as JSON");
	const now = JSON.parse(await settings.inputValue());
	assert.equal(now.writers, false);
	await settings.fill(JSON.stringify({ ...now, writers: true }));
	await dialog.getByRole("button", { name: "Review change" }).click();
	await dialog.getByRole("button", { name: "Save" }).click();
	await dialog.waitFor({ state: "detached" });
	await main.getByText("written from outside of a task, or before this keyspace kept writers").waitFor();

	const id = await s.create("ship", { order: 7 });
	const claimed = await s.claim("ship");
	const fence = { task: id, token: claimed.token };
	const commit = (/** @type {string} */ key) => ({ ops: [{ kv_put: { keyspace: "sent", key, value: "ada" } }] });
	await s.call("POST", "/v1/commit", { fence, ...commit("begun") });
	const effects = { ops: [...commit("done").ops, { kv_put: { keyspace: "plain", key: "k", value: "y" } }] };
	await s.call("POST", `/v1/tasks/${id}/complete`, { token: claimed.token, effects });
	await page.goto(`${s.url}/ui/default/kv/sent?key=done`);
	await main.getByText("written by task").waitFor();
	await main.getByText(`token ${claimed.token}`).waitFor();
	await accessible(page, "a key with its writer");
	await main.getByRole("link", { name: "all of its commit" }).click();
	await page.waitForURL(new RegExp(`/tasks/${id}/effects$`));
	const card = page.getByRole("region", { name: "One commit" });
	await card.getByRole("link", { name: "sent/done" }).click();
	await page.waitForURL(/kv\/sent\?key=done/);
	await main.getByRole("link", { name: `…${id.slice(-6)}` }).click();
	await page.waitForURL(new RegExp(`/tasks/${id}$`));

	await page.goto(`${s.url}/ui/default/kv/sent?key=begun`);
	await main.getByRole("link", { name: `…${id.slice(-6)}` }).waitFor();
	await settled(page);
	assert.equal(await main.getByText("all of its commit").count(), 0, "a commit in mid-task has no card");
	await page.goto(`${s.url}/ui/default/kv/plain?key=k`);
	await main.getByRole("region", { name: "Value of k" }).getByText("y").waitFor();
	assert.equal(await said.count(), 0);
	await s.call("PUT", "/v1/kv/sent/keys/done", "by hand");
	await page.goto(`${s.url}/ui/default/kv/sent?key=done`);
	await main.getByText("written from outside of a task").waitFor();
});

test("refs are filtered and moved, their log outlives them, and a rule is named before it refuses", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/repos", {
		name: "app",
		config: { rules: [{ refs: "refs/heads/main", deny: ["force", "delete"] }] },
	});
	const { git, remote } = workTree(s);
	git("commit", "-q", "--allow-empty", "-m", "one");
	const one = git("rev-parse", "HEAD");
	git("commit", "-q", "--allow-empty", "-m", "two");
	const two = git("rev-parse", "HEAD");
	git("push", "-q", remote, `${two}:refs/heads/main`, `${one}:refs/heads/fix/a`, `${one}:refs/heads/fix/b`);
	git("push", "-q", remote, ":refs/heads/fix/b");

	const page = await open(t, s, "default/repos/app", { allowed: [403] });
	await settled(page);
	const refs = page.getByRole("table", { name: "Refs of app" });
	await refs.getByText("refs/heads/main", { exact: true }).first().waitFor();
	await page.getByRole("textbox", { name: "Prefix or glob of names, or a whole name" }).fill("refs/**/fix/*");
	await page.getByRole("button", { name: "Filter" }).click();
	await refs.getByText("refs/heads/main", { exact: true }).waitFor({ state: "detached" });
	await refs.getByText("refs/heads/fix/a").click();
	await page.getByRole("button", { name: "Move…" }).click();
	const dialog = page.getByRole("dialog");
	assert.equal(await dialog.getByLabel("Old value").inputValue(), one);
	await dialog.getByLabel("New value: the id of an object").fill(two);
	await dialog.getByRole("button", { name: "Move" }).click();
	await dialog.waitFor({ state: "detached" });
	await page.getByRole("table", { name: "Log of refs/heads/fix/a" }).getByText("{1}").waitFor();
	assert.equal((await s.call("GET", "/v1/repos/app/refs/heads/fix/a")).id, two);

	await page.getByRole("textbox", { name: "Prefix or glob of names, or a whole name" }).fill("refs/heads/fix/b");
	await page.getByRole("button", { name: "Log of this ref" }).click();
	await page.getByText("this ref is not there").waitFor();
	await accessible(page, "the log of a deleted ref");
	await page.getByRole("button", { name: "Undelete…" }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Undelete" }).click();
	await page.getByText("this ref is not there").waitFor({ state: "detached" });
	assert.equal((await s.call("GET", "/v1/repos/app/refs/heads/fix/b")).id, one);

	await page.goto(`${s.url}/ui/default/repos/app?ref=refs/heads/main`);
	await page.getByRole("button", { name: "Delete…" }).click();
	await page.getByRole("dialog").getByText("✕ Rule 1").waitFor();
	await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
	await page.getByRole("dialog").getByText("protected by rule 1").waitFor();
	await page.getByRole("dialog").getByRole("button", { name: "Keep" }).click();
	await page.getByRole("link", { name: "Activity" }).click();
	const activity = page.getByRole("table", { name: "Activity of app" });
	await activity.getByText("undeleted in the UI").waitFor();
	await activity.getByText("refs/heads/main").first().waitFor();
	await page.getByRole("link", { name: "Rules" }).click();
	await page.getByLabel("Which rules hold for this ref?").fill("refs/heads/main");
	await page.getByText("Rule 1: all of them must agree.").waitFor();
});

test("the funnel has the numbers of the answer, a fault its place, and a missing row its reason", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	await s.call("PUT", "/v1/collections/people", {
		schema: [
			{ name: "role", type: "keywords", gate: "role" },
			{ name: "years", type: "int" },
		],
	});
	const points = Array.from({ length: 30 }, (_, i) => ({
		id: `w${i}`,
		payload: { text: `mig welder ${i}`, role: [i % 3 ? "welder" : "driver"], years: i % 6 },
	}));
	await s.call("POST", "/v1/collections/people/points:upsert", { points });
	await s.call("PUT", "/v1/rulesets/safety", {
		collection: "people",
		rules: [
			{ id: "never", when: "years == 5", severity: "block" },
			{ id: "junior", when: "years < 2", severity: "conditional", reason: "quite new" },
		],
	});
	const request = {
		collection: "people",
		query_text: "mig welder",
		k: 5,
		explain: true,
		gate: { roles: ["welder"], filter: "years > 0" },
		judge: { ruleset: "safety@1" },
	};
	const want = await s.call("POST", "/v1/matrix/search", request);
	const page = await open(t, s, "default/search", { allowed: [400] });
	await page.getByLabel("Text", { exact: true }).fill("mig welder");
	await page.getByLabel("k", { exact: true }).fill("5");
	await page.getByLabel("Gate: roles").fill("welder");
	await page.getByLabel("filter").fill("years > 0");
	await page.getByLabel("Judge: ruleset").selectOption("safety@1");
	await page.getByRole("button", { name: "Run" }).click();
	const results = page.getByRole("table", { name: "Results" });
	await results.waitFor();
	const funnel = await page.locator(".funnel").innerText();
	assert.ok(funnel.includes(`${want.gate.considered} → ${want.gate.passed}`), funnel);
	assert.ok(funnel.includes(`role −${want.gate.blocked_by.role}`), funnel);
	assert.ok(funnel.includes(`${want.judge.judged} judged`), funnel);
	assert.ok(funnel.includes(`blocked ${want.judge.blocked}`), funnel);
	assert.ok(funnel.includes(`conditional ${want.judge.conditional}`), funnel);
	for (const r of want.results) await results.getByText(r.score.toFixed(6)).first().waitFor();
	await accessible(page, "an answer");

	await page.getByLabel("Why is").fill("w3");
	await page.getByRole("button", { name: "Ask" }).click();
	await page.getByText("Stopped at the gate: it has none of the roles.").waitFor();
	await page.getByLabel("Why is").fill("w5");
	await page.getByRole("button", { name: "Ask" }).click();
	await page.getByText("Stopped by the judge: a rule of safety@1 blocks it.").waitFor();
	await page.getByLabel("Why is").fill("nobody-knows");
	await page.getByRole("button", { name: "Ask" }).click();
	await page.getByText("There is no such point in the collection.").waitFor();

	// The address is the state: another tab has the same answer.
	const address = page.url();
	await page.goto("about:blank");
	await page.goto(address);
	await results.waitFor();
	assert.equal(await page.getByLabel("filter").inputValue(), "years > 0");

	await page.getByLabel("filter").fill("years > what");
	await page.getByRole("button", { name: "Run" }).click();
	const mark = page.locator("mark");
	await mark.waitFor();
	assert.equal(await mark.getAttribute("title"), "line 1, column 9");
	assert.equal(await mark.innerText(), "w");

	await page.getByLabel("Judge: ruleset").selectOption("safety@1");
	let go = () => {};
	const held = new Promise((done) => (go = () => done(undefined)));
	await page.route("**/v1/rulesets/safety*", async (route) => {
		await held;
		await route.continue();
	});
	await page.getByRole("button", { name: "Rules…" }).click();
	const dialog = page.getByRole("dialog");
	const rules = dialog.getByLabel("Rules as JSON");
	assert.equal(await rules.isEditable(), false, "before the rules are there");
	go();
	await rules.fill('[{"id":"new","when":"years >\\n  huge","severity":"block"}]');
	await dialog.getByRole("button", { name: "Publish" }).click();
	await dialog.getByText("line 2, column 3").waitFor();
	assert.equal(await dialog.locator("mark").innerText(), "h");
	await accessible(page, "a fault of a rule");
});

test("the cluster page tells of one node, and settings hold in this browser", { skip, timeout: 300_000 }, async (t) => {
	const s = await server(t);
	const page = await open(t, s, "cluster");
	await page.getByText("one node by itself").waitFor();
	await page.getByRole("table", { name: "Shards" }).getByText("leads,").waitFor();
	assert.equal(await page.getByRole("button", { name: "Balance…" }).count(), 0);

	await page.goto(`${s.url}/ui/settings`);
	await page.getByRole("button", { name: "dark", exact: true }).click();
	await page.getByLabel("shortcuts of single letters").uncheck();
	await page.reload();
	await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
	assert.equal(await page.evaluate("document.documentElement.dataset.theme"), "dark");
	await page.keyboard.press("?");
	assert.equal(await page.getByRole("dialog").count(), 0, "letters are off");
	await page
		.getByRole("row", { name: /^react-dom/ })
		.getByRole("button")
		.click();
	await page.getByRole("region", { name: "Terms" }).getByText("Permission is hereby granted").waitFor();
	await page.getByRole("button", { name: "Sign out" }).first().click();
	await page.getByLabel("Token").waitFor();
});

test("refs are listed in the order of their changes, page by page", { skip }, async (t) => {
	const s = await server(t);
	await s.call("POST", "/v1/repos", { name: "app" });
	const create = (/** @type {string[]} */ names) =>
		s.call("POST", "/v1/repos/app/refs", {
			changes: names.map((name) => ({ kind: "symref_create", name, target: "refs/heads/main" })),
		});
	const old = Array.from({ length: 200 }, (_, n) => `refs/old/${String(n).padStart(3, "0")}`);
	await create(old);
	await create(["refs/new/z"]);
	await create(["refs/new/a"]);
	const page = await open(t, s, "default/repos/app");
	const first = page.locator("tbody tr[data-index='0']");
	await page.getByRole("button", { name: "last moved first" }).click();
	await first.getByText("refs/new/a", { exact: true }).waitFor();
	await page.locator("tbody tr[data-index='1']").getByText("refs/new/z", { exact: true }).waitFor();
	await page.getByRole("button", { name: /^Next/ }).click();
	await first.getByText("refs/old/198", { exact: true }).waitFor();
	await page.getByRole("button", { name: "by name" }).click();
	await first.getByText("HEAD", { exact: true }).waitFor();
});
