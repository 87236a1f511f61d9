// A server on which much has happened: for screenshots, and for tests that look at many screens.
import { once } from "node:events";
import { server, workTree } from "./rig.mjs";

/** Starts a server and fills it. Returns it, and the path of each screen. @param {import("node:test").TestContext} t */
export async function fill(t) {
	// As most servers run: one that does not wait for its disk says so on each page.
	const s = await server(t, "--ui-label", "STAGING,#7a4b00", "--durability", "fsync");
	const id = await work(s);
	return {
		server: s,
		ids: id,
		paths: /** @type {Record<string, string>} */ ({
			overview: "default/overview",
			queues: "default/queues",
			queue: "default/queues/mail",
			"queue-limits": "default/queues/deliver/limits",
			"queue-settings": "default/queues/mail/settings",
			"queue-errors": "default/queues/mail/errors",
			"queue-history": "default/queues/mail/history",
			tasks: "default/tasks",
			"tasks-dead": "default/tasks?q=queue:mail+state:dead",
			"task-running": `default/tasks/${id.running}`,
			"task-retried": `default/tasks/${id.retried}`,
			"task-waiting": `default/tasks/${id.waiting}`,
			"task-payload": `default/tasks/${id.done}/payload`,
			"task-effects": `default/tasks/${id.done}/effects`,
			"task-logs": `default/tasks/${id.running}/logs`,
			dead: "default/dead",
			bulk: "default/bulk",
			workers: "default/workers",
			batches: "default/batches",
			batch: `default/batches/${id.batch}`,
			limits: "default/limits",
			limiter: "default/limits/openai",
			crons: "default/crons",
			cron: "default/crons/sync",
			keyspaces: "default/kv",
			keys: "default/kv/sent?prefix=order/",
			key: "default/kv/sent?key=order/7",
			repos: "default/repos",
			refs: "default/repos/app",
			activity: "default/repos/app/activity",
			search: "default/search?collection=people&text=welder",
			cluster: "cluster",
			settings: "settings",
		}),
	};
}

/** Pushes two commits and a tag to the repository app with git; returns the ids of the commits. @param {import("./rig.mjs").Server} s @returns {[string, string]} */
function push(s) {
	const { git, remote } = workTree(s);
	git("commit", "-q", "--allow-empty", "-m", "begin");
	const first = git("rev-parse", "HEAD");
	git("tag", "v1");
	git("commit", "-q", "--allow-empty", "-m", "build the resizer");
	const second = git("rev-parse", "HEAD");
	git("push", "-q", remote, `${first}:refs/heads/main`, `${second}:refs/heads/next`, "refs/tags/v1");
	return [first, second];
}

/** Crons with runs of all kinds: one that is on, one that is paused, one that is over. @param {import("./rig.mjs").Server} s */
async function crons(s) {
	const of = { payload: { of: "yesterday", limit: 9007199254740991 }, labels: { team: "data" }, priority: 3 };
	await s.call("PUT", "/v1/crons/nightly", {
		schedule: "30 2 * * *",
		zone: "Europe/Berlin",
		jitter: "10m",
		template: { ...of, queue: "reports", kind: "report.build" },
	});
	await s.call("PUT", "/v1/crons/poll", { schedule: "@every 30s", paused: true, template: { queue: "feeds" } });
	await s.call("PUT", "/v1/crons/new-year", {
		schedule: "@yearly",
		end: new Date(Date.now() + 3000).toISOString(),
		template: { queue: "reports" },
	});
	await s.call("PUT", "/v1/crons/sync", {
		schedule: "*/15 * * * *",
		zone: "America/New_York",
		template: { ...of, queue: "feeds", kind: "feed.sync" },
	});
	for (let i = 0; i < 14; i++) {
		await s.call("POST", "/v1/crons/sync:trigger", {});
		if (i % 5 === 4) await s.call("POST", "/v1/crons/sync:trigger", {}); // skipped: the one before has not ended
		const a = await s.claim("feeds", "w-2");
		const end = i % 6 === 3 ? "fail" : "complete";
		const error = { code: "HTTP", message: "502 from upstream" };
		await s.call("POST", `/v1/tasks/${a.id}/${end}`, {
			token: a.token,
			...(end === "fail" ? { fatal: true, error } : {}),
		});
	}
	await s.call("POST", "/v1/crons/sync:trigger", {});
}

/** A queue that is shared between keys, each of which waits for something else. @param {import("./rig.mjs").Server} s */
async function keys(s) {
	await s.call("PUT", "/v1/queues/deliver", {
		lease: "1h",
		concurrency: 8,
		per_key: { concurrency: 2 },
		rate: { limit: 600, per: "1m", burst: 50 },
		max_workers: 4,
	});
	await s.call("PUT", "/v1/queues/deliver/keys/customer-9", { weight: 3, concurrency: 4 });
	for (const [key, n] of /** @type {[string, number][]} */ ([
		["customer-7", 9],
		["customer-9", 6],
		["customer-12", 2],
		["a customer with quite a long name, of Llanfairpwllgwyngyll", 1],
		["", 5],
	]))
		for (let i = 0; i < n; i++) await s.create("deliver", { parcel: i }, key ? { key } : {});
	for (let i = 0; i < 6; i++) await s.claim("deliver", `w-${i % 3}`);
	await s.call("POST", "/v1/queues/deliver/keys/customer-12:pause", { reason: "their dock is closed" });
}

/** Limiters that queues share, one of which is full. @param {import("./rig.mjs").Server} s */
async function limiters(s) {
	await s.call("PUT", "/v1/limiters/openai", { concurrency: 4, rate: { limit: 600, per: "1m", burst: 60 } });
	await s.call("PUT", "/v1/limiters/gpu", { concurrency: 2 });
	await s.call("PUT", "/v1/limiters/licenses", {});
	await s.call("PUT", "/v1/queues/chat", { limiters: ["openai"], lease: "1h", dead_letter: "letters" });
	for (let i = 0; i < 3; i++) {
		await s.create("chat", { say: "hello" });
		await s.create("render", { frame: i }, { limiters: ["gpu", "openai"] });
	}
	for (const queue of ["chat", "render", "render"]) await s.claim(queue, "w-4");
}

/** A batch at work, with tasks of each state, and one that has finished; returns the id of the first. @param {import("./rig.mjs").Server} s */
async function batches(s) {
	const one = await s.call("POST", "/v1/batches", { labels: { of: "july" }, on_done: { queue: "reports" } });
	await s.create("import", { file: "july.csv" }, { batch: one.batch.id });
	const last = await s.claim("import", "w-2");
	await s.call("POST", `/v1/tasks/${last.id}/complete`, { token: last.token });
	await s.call("POST", `/v1/batches/${one.batch.id}:seal`);
	const { batch } = await s.call("POST", "/v1/batches", {
		labels: { of: "august", customer: "acme" },
		on_done: { queue: "reports", kind: "report.build" },
		on_success: { queue: "publish" },
	});
	for (let i = 0; i < 24; i++)
		await s.create("import", { file: `august-${i}.csv` }, { batch: batch.id, kind: "file.import" });
	for (let i = 0; i < 19; i++) {
		const a = await s.claim("import", `w-${i % 2}`);
		const error = { code: "CSV", message: "line 12 has 7 fields, not 8" };
		if (i < 17)
			await s.call("POST", `/v1/tasks/${a.id}/${i % 6 === 5 ? "fail" : "complete"}`, {
				token: a.token,
				...(i % 6 === 5 ? { fatal: true, error } : {}),
			});
	}
	await s.call("POST", `/v1/batches/${batch.id}:seal`);
	return batch.id;
}

/** @param {import("./rig.mjs").Server} s */
async function work(s) {
	/** @param {any} a */
	const of = (a) => ({ id: a.task?.id ?? a.id, token: a.token });
	/** @param {any} a @param {string} how @param {Record<string, unknown>} body */
	const settle = (a, how, body = {}) => {
		const { id, token } = of(a);
		return s.call("POST", `/v1/tasks/${id}/${how}`, { token, ...body });
	};
	await crons(s);
	await keys(s);
	await limiters(s);
	const batch = await batches(s);
	for (const space of ["sent", "counts"]) await s.call("PUT", `/v1/keyspaces/${space}`, {});
	for (let i = 0; i < 60; i++)
		await s.call("PUT", `/v1/kv/sent/keys/${encodeURIComponent(`order/${i % 7}/${i}`)}`, `{"to":"ada","n":${i}}`);
	await s.call("PUT", "/v1/kv/sent/keys/order%2F7", '{"to":"ada","n":9007199254740993}');
	await s.call("POST", "/v1/repos", { name: "app" });
	const [first, second] = push(s);
	await s.call("PUT", "/v1/collections/people", {
		schema: [
			{ name: "role", type: "keywords", gate: "role" },
			{ name: "certs", type: "credentials", gate: "credential" },
			{ name: "years", type: "int" },
		],
	});
	const points = [];
	for (let i = 0; i < 40; i++) {
		const role = i % 4 === 0 ? "driver" : "welder";
		const certs =
			i % 3 === 0 ? [] : [{ id: "MIG-2", expires_at: i % 5 === 0 ? "2020-01-01T00:00:00Z" : "2030-01-01T00:00:00Z" }];
		points.push({ id: `w${i}`, payload: { text: `mig ${role}, shift ${i % 3}`, role: [role], certs, years: i % 9 } });
	}
	await s.call("POST", "/v1/collections/people/points:upsert", { points });
	for (let i = 0; i < 40; i++)
		await s.create("mail", { to: "ada@example.org", n: i }, { kind: "mail.send", labels: { order: String(i) } });
	for (let i = 0; i < 25; i++)
		await s.create("thumb", { url: `https://example.org/${i}.png`, width: 300 }, { kind: "image.thumb" });
	for (let i = 0; i < 12; i++)
		await s.create("build", { commit: "3fa9c01d", target: `//pkg/${i}` }, { kind: "ci.build", priority: i % 3 });
	await s.call("POST", "/v1/queues/thumb:pause", { reason: "the resizer is being deployed" });
	for (let i = 0; i < 14; i++) {
		const error = {
			code: "SMTP",
			message: "550 mailbox unavailable",
			stack: "mail.send\n  smtp.go:120\n  worker.go:44",
		};
		await settle(await s.claim("mail", `w-${i % 3}`), "fail", { fatal: true, error });
	}
	const again = await s.claim("mail", "w-1");
	await settle(again, "fail", {
		retry_after: "0s",
		error: { code: "SMTP", message: "451 try again later", stack: "mail.send\n  smtp.go:98" },
	});
	const retried = of(again).id;
	const done = of(await s.claim("build", "w-7"));
	await s.call("POST", `/v1/tasks/${done.id}/complete`, {
		token: done.token,
		result: { image: "app:3fa9c01d", seconds: 41 },
		effects: {
			conditions: [{ keyspace: "sent", key: "build/3fa9c01d", compare: "absent" }],
			ops: [
				{ kv_put: { keyspace: "sent", key: "build/3fa9c01d", value: "ok" } },
				{ kv_add: { keyspace: "counts", key: "builds", delta: 1 } },
				{
					ref_transaction: {
						repo: "app",
						changes: [{ kind: "update", name: "refs/heads/main", old: first, new: second }],
					},
				},
				{
					vector_upsert: {
						collection: "people",
						point: { id: "w1", payload: { text: "mig welder, now certified", role: ["welder"], years: 2 } },
					},
				},
				{ task_create: { queue: "mail", kind: "mail.send", payload: { to: "team@example.org", about: "build" } } },
			],
		},
	});
	// One of the keys is written again, and the point is gone: the card of the commit must say so.
	await s.call("POST", "/v1/commit", { ops: [{ kv_add: { keyspace: "counts", key: "builds", delta: 1 } }] });
	await s.call("POST", "/v1/collections/people/points:delete", { points: [{ id: "w1" }] });
	const running = of(await s.claim("build", "w-8"));
	await s.call("POST", `/v1/tasks/${running.id}/report`, {
		token: running.token,
		progress: { percent: 40, message: "linking" },
		lines: ["compile //pkg/1", "link //pkg/1"],
	});
	const worker = s.command(["work", "-q", "build", "--exec", "sleep 600"]);
	void once(worker, "exit");
	const waiting = (await s.call("GET", "/v1/tasks?queue=thumb&state=ready&limit=1")).tasks[0].id;
	return { retried, done: done.id, running: running.id, waiting, batch };
}
