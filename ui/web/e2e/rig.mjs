// What the tests in a browser are made of: a real server on free ports, a real browser, and pages that fail a test where the browser
// complains. See README of node:test for `t`.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect as http2 } from "node:http2";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";

/** The program. */
export const binary = process.env["MILLRACE_BIN"] ?? resolve(import.meta.dirname, "../../../.cache/millrace");
const browserPath = process.env["MILLRACE_CHROMIUM"] ?? "/usr/bin/chromium";
const axePath = resolve(import.meta.dirname, "../node_modules/axe-core/axe.min.js");

/** The reason to skip all tests of this kind; false where nothing is missing. CI must not skip them. */
export const skip = missing();

function missing() {
	const what = [binary, browserPath].filter((p) => !existsSync(p)).join(" and ");
	if (!what) return false;
	if (process.env["MILLRACE_SDK_REQUIRED"] === "1") throw new Error(`${what} must be there`);
	return `${what} is missing`;
}

/** MILLRACE_UI_WIDE=1 runs all rows of tests that have many, and those that take long. */
export const wide = process.env["MILLRACE_UI_WIDE"] === "1";
/** The reason to skip a test that takes long. */
export const narrow = wide ? false : "only with MILLRACE_UI_WIDE=1";

/** Slows the browser down by this factor, and its requests by up to 50 ms times it, to find tests that rely on speed. */
const slow = Number(process.env["MILLRACE_UI_SLOW"] ?? 1);

/** The servers that this process has started and that run. @type {Set<import("node:child_process").ChildProcess>} */
const started = new Set();
process.once("exit", () => {
	for (const p of started) p.kill("SIGKILL");
});
// The runner of tests ends its files so when its own time is over.
process.once("SIGTERM", () => process.exit(143));

/** A millrace process in development mode, with a directory of its own. */
export class Server {
	/** @param {string} dir @param {string[]} flags */
	constructor(dir, flags) {
		this.dir = dir;
		this.flags = flags;
		this.url = "";
		this.grpc = "";
		this.token = "";
		this.out = "";
		/** @type {import("node:child_process").ChildProcess | undefined} */
		this.process = undefined;
	}

	async start() {
		const listen = this.grpc || "127.0.0.1:0";
		const http = this.url ? this.url.slice("http://".length) : "127.0.0.1:0";
		const file = join(this.dir, "token");
		// What a page shows does not hang on the disk; a slow one must not fail a test.
		const fixed = ["--data", join(this.dir, "data"), "--listen", listen, "--http", http, "--durability", "none"];
		fixed.push("--disk-reserve", "16777216"); // many servers share the disk, and each takes as much of it as it keeps free
		// A server with a file of tokens has no token of its own.
		if (!this.flags.includes("--tokens")) fixed.push("--dev", "--token-file", file);
		if (!this.flags.includes("--admin")) fixed.push("--admin", "off");
		await this.began(spawn(binary, ["serve", ...fixed, ...this.flags], { stdio: ["ignore", "pipe", "pipe"] }));
		if (existsSync(file)) this.token = readFileSync(file, "utf8").trim();
		return this;
	}

	/** Waits until a process that was started serves, and learns its addresses. @param {import("node:child_process").ChildProcessByStdio<null, import("node:stream").Readable, import("node:stream").Readable>} p */
	async began(p) {
		this.process = p;
		this.out = "";
		started.add(p);
		p.once("exit", () => started.delete(p));
		for (const s of [p.stdout, p.stderr]) s.on("data", (d) => (this.out += d));
		await new Promise((done, fail) => {
			const look = () => {
				const grpc = /^millrace serves .* on (\S+)/m.exec(this.out);
				const rest = /^REST on (\S+)/m.exec(this.out);
				if (!grpc || !rest) return;
				this.grpc = /** @type {string} */ (grpc[1]);
				this.url = `http://${rest[1]}`;
				done(undefined);
			};
			p.stdout.on("data", look);
			p.stderr.on("data", look);
			p.once("exit", (code) => fail(new Error(`the server ended with ${code}:\n${this.out}`)));
		});
	}

	/** Whether its process runs. */
	runs() {
		return !!this.process && this.process.exitCode === null && this.process.signalCode === null;
	}

	/** @param {NodeJS.Signals} signal */
	async stop(signal = "SIGTERM") {
		const p = this.process;
		if (!p || !this.runs()) return;
		const ended = new Promise((done) => p.once("exit", done));
		p.kill(signal);
		await ended;
	}

	/**
	 * Calls a route with the token of the server.
	 * @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
	 * @returns {Promise<any>}
	 */
	async call(method, path, body, headers = {}) {
		const raw = typeof body === "string" || body instanceof Uint8Array;
		const response = await fetch(this.url + path, {
			method,
			headers: {
				Authorization: `Bearer ${this.token}`,
				...(raw ? {} : { "Content-Type": "application/json" }),
				...headers,
			},
			...(body === undefined ? {} : { body: raw ? /** @type {BodyInit} */ (body) : JSON.stringify(body) }),
		});
		const text = await response.text();
		if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
		try {
			return JSON.parse(text);
		} catch {
			return text;
		}
	}

	/** @param {string} queue @param {unknown} payload @param {Record<string, unknown>} [more] @returns {Promise<string>} id of the task */
	async create(queue, payload, more = {}) {
		return (await this.call("POST", "/v1/tasks", { queue, kind: `${queue}.run`, payload, ...more })).id;
	}

	/** @param {string} queue @param {string} [worker] @returns {Promise<any>} the assignment */
	async claim(queue, worker = "w-1") {
		const answer = await this.call("POST", "/v1/tasks:claim", { queues: [queue], max: 1, worker, wait: "5s" });
		const list = answer.assignments ?? answer.tasks ?? [];
		assert.equal(list.length, 1, `nothing to claim in ${queue}`);
		return list[0];
	}

	/** A link that signs in once, and opens a path below /ui/. */
	async link(path = "") {
		const { code } = await this.call("POST", "/v1/session:code");
		return `${this.url}/ui/${path}#code=${code}`;
	}

	/** Starts a millrace command that talks to this server, such as ["work", ...]. @param {string[]} args */
	command(args) {
		return spawn(binary, args, {
			stdio: ["ignore", "pipe", "pipe"],
			env: {
				...process.env,
				MILLRACE_URL: `http://${this.grpc}`,
				MILLRACE_SERVER: this.grpc,
				MILLRACE_TOKEN: this.token,
			},
		});
	}
}

/** @type {WeakMap<object, (() => unknown)[]>} */
const ends = new WeakMap();

/**
 * Calls a function at the end of a test, after those that were asked for later: a page is judged before its browser and its server go.
 * @param {import("node:test").TestContext} t @param {() => unknown} f
 */
export function atEnd(t, f) {
	const known = ends.get(t);
	if (known) {
		known.push(f);
		return;
	}
	const all = [f];
	ends.set(t, all);
	t.after(async () => {
		/** @type {unknown[]} */
		const faults = [];
		for (const end of all.reverse()) {
			try {
				await end();
			} catch (e) {
				faults.push(e);
			}
		}
		if (faults.length > 0) throw faults[0];
	});
}

/** Where this is a number, servers are nodes of a cluster of so many, and lead nothing: what pages do is done by other nodes. */
const nodes = Number(process.env["MILLRACE_UI_NODES"] ?? 1);

/** Starts a server, which ends with the test. @param {import("node:test").TestContext} t @param {string[]} flags @returns {Promise<Server>} */
export async function server(t, ...flags) {
	// The nodes of a cluster have tokens of their own.
	if (nodes > 1 && !flags.includes("--tokens")) {
		const { cluster } = await import("./nodes-rig.mjs");
		return (await cluster(t, { nodes, flags })).follower();
	}
	const dir = mkdtempSync(join(tmpdir(), "millrace-ui-"));
	const s = new Server(dir, flags);
	atEnd(t, async () => {
		await s.stop("SIGKILL");
		rmSync(dir, { recursive: true, force: true });
	});
	return s.start();
}

/** Makes a token and its row of a file of tokens. @param {string} name @param {string[]} flags */
export function made(name, ...flags) {
	const out = JSON.parse(execFileSync(binary, ["token", "--json", "--name", name, ...flags], { encoding: "utf8" }));
	return {
		name,
		token: /** @type {string} */ (out.token),
		row: /** @type {string} */ (out.file).replace("tokens:\n", ""),
	};
}

/** Writes a file of tokens into a folder, and returns its path. @param {string} dir @param {{ row: string }[]} all */
export function writeTokens(dir, all) {
	const file = join(dir, "tokens.yaml");
	writeFileSync(file, `tokens:\n${all.map((m) => m.row).join("")}`);
	return file;
}

/** Writes a file of tokens, which is removed with the test, and returns its path. @param {import("node:test").TestContext} t @param {{ row: string }[]} all */
export function tokensFile(t, all) {
	const dir = mkdtempSync(join(tmpdir(), "millrace-ui-"));
	atEnd(t, () => rmSync(dir, { recursive: true, force: true }));
	return writeTokens(dir, all);
}

/** Processor time of a process, in milliseconds, and its memory, in MiB. @param {Server} s */
export function usage(s) {
	const pid = s.process?.pid;
	if (!pid || !existsSync(`/proc/${pid}/stat`)) return { cpu: Number.NaN, memory: Number.NaN };
	const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
	const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
	const status = readFileSync(`/proc/${pid}/status`, "utf8");
	return {
		cpu: 10 * (Number(fields[11]) + Number(fields[12])),
		memory: Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? Number.NaN) / 1024,
	};
}

/** A work tree of git in the directory of a server, and the address of its repository app, token and all. @param {Server} s */
export function workTree(s) {
	const dir = join(s.dir, "work");
	const git = (/** @type {string[]} */ ...args) =>
		execFileSync("git", ["-C", dir, "-c", "user.name=ci", "-c", "user.email=ci@example.org", ...args], {
			encoding: "utf8",
			stdio: ["ignore", "pipe", "pipe"],
		}).trim();
	mkdirSync(dir);
	git("init", "-q");
	return { git, remote: `${s.url.replace("http://", `http://any:${s.token}@`)}/git/default/app.git` };
}

/** @type {Promise<import("playwright-core").Browser> | undefined} */
let shared;

/** The browser of this process. */
export function browser() {
	shared ??= chromium.launch({
		executablePath: browserPath,
		args: [
			"--no-sandbox",
			"--disable-gpu",
			"--disable-quic",
			"--no-first-run",
			"--disable-background-networking",
			"--disable-component-update",
			"--disable-sync",
		],
	});
	return shared;
}

/** Closes the browser. Call it in an `after` of each file. */
export async function closeBrowser() {
	await (await shared)?.close();
	shared = undefined;
}

/**
 * Opens a context of its own (cookies, storage, tabs).
 * @param {import("node:test").TestContext} t
 * @param {import("playwright-core").BrowserContextOptions} [options]
 */
export async function context(t, options = {}) {
	const c = await (await browser()).newContext({ viewport: { width: 1280, height: 800 }, ...options });
	c.setDefaultTimeout(60_000);
	atEnd(t, () => c.close());
	return c;
}

/**
 * Opens a tab whose errors, refusals of the policy and calls to other hosts fail the test at its end. A test that provokes refusals of
 * the server names their statuses.
 * @param {import("node:test").TestContext} t @param {import("playwright-core").BrowserContext} c @param {number[]} [allowed]
 */
export async function tab(t, c, allowed = []) {
	const page = await c.newPage();
	if (slow > 1) {
		await (await c.newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate: slow });
		await page.route("**/v1/**", async (r) => {
			await new Promise((done) => setTimeout(done, Math.random() * 50 * slow));
			await r.continue().catch(() => undefined); // the page may be gone
		});
	}
	/** @type {string[]} */
	const wrong = [];
	page.on("console", (m) => {
		if (m.type() !== "error" && m.type() !== "warning") return;
		if (/Failed to load resource/.test(m.text())) return; // told by its status, below
		wrong.push(`${m.type()}: ${m.text()}`);
	});
	page.on("pageerror", (e) => wrong.push(`exception: ${e.message}`));
	page.on("response", (r) => {
		if (r.status() >= 400 && !allowed.includes(r.status()))
			wrong.push(`${r.status()} ${r.request().method()} ${r.url()}`);
	});
	page.on("request", (r) => {
		const host = new URL(r.url()).hostname;
		if (!r.url().startsWith("blob:") && host !== "127.0.0.1" && host !== "localhost")
			wrong.push(`a call to ${r.url()}`);
	});
	atEnd(t, async () => {
		// @ts-expect-error the types of this release of Node do not know it
		if (t.error) console.error(await shown(page));
		assert.deepEqual(wrong, [], "what the browser complained of");
	});
	return page;
}

/** What a page shows, for the report of a test that failed. @param {import("playwright-core").Page} page */
async function shown(page) {
	if (page.isClosed()) return "the page is closed";
	const text = await page.locator("body").ariaSnapshot({ timeout: 5000 }).catch(String);
	return `${page.url()} shows:\n${text}`;
}

/** Signs in by a link and opens a path below /ui/. @param {import("node:test").TestContext} t @param {Server} s @param {string} path @param {{ allowed?: number[], context?: import("playwright-core").BrowserContext }} [o] */
export async function open(t, s, path = "", o = {}) {
	const c = o.context ?? (await context(t));
	const page = await tab(t, c, o.allowed);
	await page.goto(await s.link(path));
	await page.getByRole("heading", { level: 1 }).waitFor();
	return page;
}

/** The kind of screen that a path below /ui/ leads to: the place, and how far into it. @param {string} path */
const kindOf = (path) => {
	const [ns, place, ...rest] = path.replace(/\?.*/, "").split("/");
	return `${place ?? ns} ${rest.length}`;
};

/**
 * Goes to another screen as a link does, and waits until it has read what it shows. Only where it is of the same kind, so that one could be
 * taken for the other, is the page loaded again. @param {import("playwright-core").Page} page @param {string} path below /ui/
 */
export async function go(page, path) {
	const at = new URL(page.url());
	if (kindOf(path) === kindOf(at.pathname.replace(/^\/ui\//, ""))) {
		await page.goto(`${at.origin}/ui/${path}`);
		await settled(page);
		return;
	}
	const before = await page.getByRole("heading", { level: 1 }).elementHandle();
	await page.evaluate((to) => history.pushState(null, "", to), `/ui/${path}`);
	await before?.waitForElementState("hidden"); // it is not in the document any more
	await before?.dispose();
	await settled(page);
}

/** Waits until the page has read what it shows. @param {import("playwright-core").Page} page */
export async function settled(page) {
	await page.getByRole("heading", { level: 1 }).waitFor();
	await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"));
}

/** @type {string | undefined} */
let axe;

/** Fails where axe finds something serious or critical on the page. @param {import("playwright-core").Page} page @param {string} what */
export async function accessible(page, what) {
	// Through the debugger, which the page's policy does not bind. It stays as long as the page is not loaded again.
	if (!(await page.evaluate(() => "axe" in window))) {
		axe ??= readFileSync(axePath, "utf8");
		await page.evaluate(`${axe};undefined`);
	}
	const found = await page.evaluate(async () => {
		// The page has no frames, and its style sheets are read once.
		// @ts-expect-error axe is what was put there
		const r = await window.axe.run(document, { resultTypes: ["violations"], iframes: false, preload: false });
		return r.violations
			.filter((/** @type {any} */ v) => v.impact === "serious" || v.impact === "critical")
			.map(
				(/** @type {any} */ v) => `${v.id}: ${v.nodes.map((/** @type {any} */ n) => n.html.slice(0, 160)).join(" | ")}`,
			);
	});
	assert.deepEqual(found, [], `${what}: findings of axe`);
}

/** A field of a message of the contract, as it goes over gRPC. @param {number} number @param {number | string | Uint8Array} value */
function field(number, value) {
	if (typeof value === "number") return Buffer.from([number << 3, value]); // below 128
	const bytes = typeof value === "string" ? Buffer.from(value) : value;
	assert.ok(bytes.length < 128, "a longer field needs a longer length");
	return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

/**
 * A worker of a queue by a stream, which says what it has handlers for and settles nothing. It ends with the test. Resolves when the server
 * knows it.
 * @param {import("node:test").TestContext} t @param {Server} s
 * @param {{ id: string, queue: string, kinds: string[], slots: number }} w
 */
export async function worker(t, s, w) {
	const client = http2(`http://${s.grpc}`);
	client.on("error", () => undefined); // the server ends before it does
	atEnd(t, () => client.destroy());
	const stream = client.request({
		":method": "POST",
		":path": "/millrace.v1.QueueStream/Open",
		"content-type": "application/grpc",
		te: "trailers",
		authorization: `Bearer ${s.token}`,
	});
	stream.on("error", () => undefined);
	stream.resume();
	/** @param {Buffer} frame */
	const send = (frame) => {
		const head = Buffer.alloc(5);
		head.writeUInt32BE(frame.length, 1);
		stream.write(Buffer.concat([head, frame]));
	};
	const info = Buffer.concat([field(1, w.id), ...w.kinds.map((k) => field(2, k))]);
	send(field(1, Buffer.concat([field(1, 1), field(2, randomBytes(16)), field(4, info)])));
	send(field(4, Buffer.concat([field(1, 1), field(2, field(1, w.queue)), field(3, w.slots)])));
	for (;;) {
		const { workers } = await s.call("GET", `/v1/workers?queue=${w.queue}`);
		if (workers?.some((/** @type {any} */ one) => one.id === w.id)) return;
		await new Promise((done) => setTimeout(done, 50));
	}
}
