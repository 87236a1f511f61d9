import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, context, go, made, server, settled, skip, tab, tokensFile } from "./rig.mjs";

after(closeBrowser);

/** Writes that a page can send, with the ranks that may. */
const writes = /** @type {[string, string, unknown, string[]][]} */ ([
	["POST", "/v1/queues/mail:pause", { reason: "noon" }, ["responder", "admin"]],
	["POST", "/v1/queues/mail:resume", undefined, ["responder", "admin"]],
	["POST", "/v1/tasks/DEAD/retry", {}, ["responder", "admin"]],
	["POST", "/v1/tasks/READY/cancel", {}, ["responder", "admin"]],
	[
		"POST",
		"/v1/bulk",
		{ action: "retry", filter: { queue: "mail", state: "dead" }, dry_run: true },
		["responder", "admin"],
	],
	["POST", "/v1/crons/nightly:pause", undefined, ["responder", "admin"]],
	["POST", "/v1/crons/nightly:resume", undefined, ["responder", "admin"]],
	["POST", "/v1/crons/nightly:trigger", {}, ["responder", "admin"]],
	["POST", "/v1/queues/mail/keys/ann:pause", { reason: "noon" }, ["responder", "admin"]],
	["POST", "/v1/queues/mail/keys/ann:resume", undefined, ["responder", "admin"]],
	["PUT", "/v1/queues/mail/keys/ann", { weight: 2 }, ["admin"]],
	["PUT", "/v1/crons/nightly", { schedule: "@daily", template: { queue: "mail" } }, ["admin"]],
	["DELETE", "/v1/crons/none", undefined, ["admin"]],
	["PUT", "/v1/limiters/api", { concurrency: 1 }, ["admin"]],
	["DELETE", "/v1/limiters/none", undefined, ["admin"]],
	["POST", "/v1/commit", { ops: [{ batch_open: {} }] }, ["admin"]],
	["POST", "/v1/batches/BATCH:seal", undefined, ["admin"]],
	["POST", "/v1/batches/BATCH:cancel", {}, ["responder", "admin"]],
	["PUT", "/v1/queues/mail", { max_attempts: 3 }, ["admin"]],
	["DELETE", "/v1/queues/none", undefined, ["admin"]],
	["PUT", "/v1/kv/notes/keys/k", "v", ["admin"]],
	["POST", "/v1/tasks", { queue: "mail", payload: 1 }, ["admin"]],
	["POST", "/v1/cluster/balance", undefined, []],
	["POST", "/v1/sessions:end", undefined, []],
]);

test("buttons name the scope that is missing, and the server refuses what they would have sent", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const ranks = {
		viewer: made("vera", "--role", "viewer"),
		responder: made("rob", "--role", "responder"),
		admin: made("ada", "--role", "admin"),
	};
	const boss = made("boss", "--role", "admin", "--scope", "task:work");
	const s = await server(t, "--tokens", tokensFile(t, [...Object.values(ranks), boss]));
	s.token = boss.token;
	await s.call("PUT", "/v1/keyspaces/notes", {});
	await s.call("PUT", "/v1/crons/nightly", { schedule: "0 2 * * *", template: { queue: "reports" } });
	await s.call("PUT", "/v1/limiters/api", { concurrency: 2 });
	for (const [rank, { token }] of Object.entries(ranks)) {
		const { id: batch } = (await s.call("POST", "/v1/batches", { on_done: { queue: "mail" } })).batch;
		const ready = await s.create("mail", 1);
		const dead = await s.create("broken", 1);
		const a = await s.claim("broken");
		await s.call("POST", `/v1/tasks/${a.task?.id ?? a.id}/fail`, {
			token: a.token,
			fatal: true,
			error: { code: "X", message: "x" },
		});
		const page = await tab(t, await context(t), [400, 401, 403, 404, 409, 503]);
		await page.goto(`${s.url}/ui/`);
		await page.getByLabel("Token").fill(token);
		await page.getByRole("button", { name: "Sign in" }).click();
		await settled(page);
		for (const path of [
			"default/queues/mail",
			"default/queues/mail/limits",
			"default/crons",
			"default/crons/nightly",
			"default/limits",
			"default/limits/api",
			"default/batches",
			`default/batches/${batch}`,
			`default/tasks/${dead}`,
			"default/dead",
			"default/workers",
			"default/kv/notes",
			"settings",
		]) {
			await go(page, path);
			// Whatever is disabled for a scope says which.
			for (const title of await page
				.locator("main button:disabled[title*=scope]")
				.evaluateAll((all) => all.map((b) => b.getAttribute("title") ?? "")))
				assert.match(title, /needs (the|one of the) scopes? [a-z]+(:[a-z]+)?/, `${rank}, ${path}`);
		}
		await go(page, "default/queues/mail");
		await page.getByRole("button", { name: /^Pause/ }).click();
		const items = page.getByRole("menuitem");
		await items.first().waitFor();
		for (const item of await items.all()) assert.equal(await item.isDisabled(), rank === "viewer", `${rank}: pause`);
		assert.equal(await page.getByRole("link", { name: "Cluster" }).count(), 0, `${rank} sees no cluster`);
		await go(page, "default/crons/nightly");
		for (const [name, may] of /** @type {[string, string[]][]} */ ([
			["Trigger now", ["responder", "admin"]],
			["Pause", ["responder", "admin"]],
			["Edit…", ["admin"]],
		]))
			assert.equal(
				await page.getByRole("button", { name, exact: true }).isDisabled(),
				!may.includes(rank),
				`${rank}: ${name}`,
			);
		await go(page, `default/batches/${batch}`);
		for (const [name, may] of /** @type {[string, string[]][]} */ ([
			["Seal…", ["admin"]],
			["Cancel…", ["responder", "admin"]],
		]))
			assert.equal(
				await page.getByRole("button", { name, exact: true }).isDisabled(),
				!may.includes(rank),
				`${rank}: ${name}`,
			);
		// The same requests by hand, with the session of the page.
		const csrf = await page.evaluate(
			async () => (await (await fetch("/v1/session", { headers: { "Millrace-Session": "hello" } })).json()).csrf,
		);
		for (const [method, path, body, may] of writes) {
			const status = await page.evaluate(
				async ([csrf, method, path, body]) => {
					const raw = typeof body === "string";
					const r = await fetch(`${path}?ns=default`, {
						method,
						headers: {
							"Millrace-Session": csrf,
							"Content-Type": raw ? "application/octet-stream" : "application/json",
						},
						...(body === undefined || body === null ? {} : { body: raw ? body : JSON.stringify(body) }),
					});
					return r.status;
				},
				/** @type {[string, string, string, any]} */ ([
					csrf,
					method,
					path.replace("DEAD", dead).replace("READY", ready).replace("BATCH", batch),
					body,
				]),
			);
			if (may.includes(rank)) assert.notEqual(status, 403, `${rank}: ${method} ${path}`);
			else assert.equal(status, 403, `${rank}: ${method} ${path}`);
		}
	}
});

test("a person who signs in after another sees nothing of what the other read", { skip }, async (t) => {
	const ada = made("ada", "--role", "admin");
	const vera = made("vera", "--scope", "task:read");
	const s = await server(t, "--tokens", tokensFile(t, [ada, vera]));
	s.token = ada.token;
	await s.call("PUT", "/v1/keyspaces/notes", {});
	await s.call("PUT", "/v1/kv/notes/keys/secret-plan", "v");
	const page = await tab(t, await context(t), [401, 403]);
	await page.goto(`${s.url}/ui/default/kv/notes`);
	const enter = async (/** @type {string} */ token) => {
		await page.getByLabel("Token").fill(token);
		await page.getByRole("button", { name: "Sign in" }).click();
	};
	await enter(ada.token);
	await page.getByText("secret-plan").first().waitFor();
	await page.getByRole("button", { name: "ada of default" }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await enter(vera.token);
	await page.getByRole("heading", { level: 1 }).waitFor();
	await settled(page);
	assert.equal(await page.getByText("secret-plan").count(), 0);
	await page.getByText("PERMISSION_DENIED").first().waitFor();
});
