// What the tests of several nodes are made of: real servers that form a cluster, on ports that no other test of this machine has.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atEnd, binary, made, Server, writeTokens } from "./rig.mjs";

/** Ports that the kernel never draws by itself lie between these. */
const lowest = 10_000;
const highest = 32_700;

/** Takes the UDP socket of a number, by which tests of all languages reserve it, and reports whether nothing listens there. @param {number} port */
async function reserve(port) {
	const lock = createSocket("udp4");
	const bound = await new Promise((done) => {
		lock.once("error", () => done(false));
		lock.bind({ port, address: "127.0.0.1", exclusive: true }, () => done(true));
	});
	const free =
		bound &&
		(await new Promise((done) => {
			const s = connect({ port, host: "127.0.0.1" });
			s.once("connect", () => {
				s.destroy();
				done(false);
			});
			s.once("error", (/** @type {NodeJS.ErrnoException} */ e) => done(e.code === "ECONNREFUSED"));
		}));
	if (free) {
		lock.unref();
		return lock;
	}
	try {
		lock.close();
	} catch {
		// It was never bound.
	}
	return undefined;
}

/** Reserves numbers in a row. @param {number} n @returns {Promise<{ first: number, release: () => void }>} */
async function ports(n) {
	for (let tries = 0; tries < 200; tries++) {
		const first = lowest + Math.floor(Math.random() * (highest - lowest - n));
		/** @type {import("node:dgram").Socket[]} */
		const locks = [];
		for (let i = 0; i < n; i++) {
			const lock = await reserve(first + i);
			if (!lock) break;
			locks.push(lock);
		}
		const release = () => {
			for (const l of locks) l.close();
		};
		if (locks.length === n) return { first, release };
		release();
	}
	throw new Error(`no ${n} ports in a row are free`);
}

/** A node of a cluster. It may be killed, and started again with its data. */
export class ClusterNode extends Server {
	/** @param {Cluster} cluster @param {any} made */
	constructor(cluster, made) {
		super(join(cluster.dir, made.name), cluster.flags);
		this.cluster = cluster;
		this.id = Number(made.id);
		this.name = /** @type {string} */ (made.name);
		this.grpc = made.grpc;
		this.url = `http://${made.http}`;
		this.token = cluster.token;
		this.admin = `http://${made.admin}`;
	}

	/** How many streams of events it serves, by its goroutines. */
	async streams() {
		const r = await fetch(`${this.admin}/debug/pprof/goroutine?debug=2`);
		assert.equal(r.status, 200, "profiles are served on the admin listener");
		return (await r.text()).split("\n\n").filter((g) => g.includes("rest.(*restCall).events(")).length;
	}

	/**
	 * Calls a route at this node, which fetches the answer where another one leads.
	 * @override @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
	 */
	async call(method, path, body, headers = {}) {
		return super.call(method, `${path}${path.includes("?") ? "&" : "?"}forward=1`, body, headers);
	}

	/** @override */
	async start() {
		const fixed = ["--config", join(this.dir, "millrace.yaml"), "--durability", "none", "--disk-reserve", "16777216"];
		await this.began(spawn(binary, ["serve", ...fixed, ...this.flags], { stdio: ["ignore", "pipe", "pipe"] }));
		return this;
	}
}

/** A cluster, of which each node serves the web UI. */
export class Cluster {
	/** @param {string} dir @param {number} shards @param {string[]} flags of all nodes */
	constructor(dir, shards, flags) {
		this.dir = dir;
		this.shards = shards;
		this.flags = flags;
		this.token = "";
		/** @type {Record<string, string>} Tokens, by their names. */
		this.tokens = {};
		/** @type {ClusterNode[]} */
		this.nodes = [];
	}

	/** Makes the files of the nodes and starts them. @param {number} n @param {number} first port */
	async start(n, first) {
		const args = ["--nodes", String(n), "--shards", String(this.shards), "--base-port", String(first)];
		const files = JSON.parse(
			execFileSync(binary, ["cluster", "init", "--json", "--dir", this.dir, ...args], { encoding: "utf8" }),
		);
		const rows = [
			made("boss", "--role", "admin", "--scope", "cluster"),
			made("ada", "--role", "admin"),
			made("vera", "--role", "viewer", "--scope", "cluster"),
		];
		for (const m of rows) this.tokens[m.name] = m.token;
		this.token = /** @type {string} */ (this.tokens["boss"]);
		for (const one of files.nodes) {
			writeTokens(join(this.dir, one.name), rows);
			this.nodes.push(new ClusterNode(this, one));
		}
		await Promise.all(this.nodes.map((m) => m.start()));
		await this.until("every shard is led", (x) => x.shards.length === this.shards && x.shards.every(led));
		return this;
	}

	/** Waits until each node leads the shards that are at home with it, after which none moves by itself. */
	async home() {
		const home = (/** @type {any} */ s) => s.leader === (s.shard % this.nodes.length) + 1;
		await this.until("every shard is at home", (x) => x.shards.length === this.shards && x.shards.every(home));
		return this;
	}

	/** The node of a number. @param {number} id */
	node(id) {
		return /** @type {ClusterNode} */ (this.nodes.find((n) => n.id === id));
	}

	/** Nodes that run. */
	running() {
		return this.nodes.filter((n) => n.runs());
	}

	/** How the cluster looks from a node; undefined: it did not answer. @param {ClusterNode} [from] @returns {Promise<any>} */
	async status(from = this.running()[0]) {
		return from?.call("GET", "/v1/cluster").catch(() => undefined);
	}

	/** Waits until the cluster is so, as a node sees it. @param {string} what @param {(status: any) => unknown} is @param {ClusterNode} [from] */
	async until(what, is, from) {
		/** @type {any} */
		let last;
		for (const ends = Date.now() + 120_000; Date.now() < ends; ) {
			last = await this.status(from);
			if (last && is(last)) return last;
			await new Promise((done) => setTimeout(done, 100));
		}
		throw new Error(`never came to be: ${what}; the cluster is ${JSON.stringify(last)}`);
	}

	/** The node that leads a shard. @param {number} shard */
	async leader(shard) {
		const s = await this.until(
			`shard ${shard} is led`,
			(x) => x.shards.find((/** @type {any} */ y) => y.shard === shard)?.leader,
		);
		return this.node(s.shards.find((/** @type {any} */ y) => y.shard === shard).leader);
	}

	/** A node that leads no shard, once there is one. */
	async follower() {
		const s = await this.until("a node leads nothing", (x) => x.nodes.some(idle));
		return this.node(s.nodes.find(idle).id);
	}

	/** The shard of a partition. @param {string} [ns] @param {number} [partition] @returns {Promise<number>} */
	async shardOf(ns = "default", partition = 0) {
		const s = await this.until(
			`partition ${partition} of ${ns} is known`,
			(x) => found(x, ns, partition) !== undefined,
		);
		return /** @type {number} */ (found(s, ns, partition));
	}
}

/** Whether a shard is led. @param {any} shard of a status */
const led = (shard) => !!shard.leader;

/** Whether a node leads nothing. @param {any} node of a status */
const idle = (node) => node.reachable && !node.leads?.length;

/** @param {any} status @param {string} ns @param {number} partition @returns {number | undefined} */
function found(status, ns, partition) {
	return status.shards.find((/** @type {any} */ s) =>
		s.partitions?.some((/** @type {any} */ p) => p.namespace === ns && p.partition === partition),
	)?.shard;
}

/** Starts a cluster, which ends with the test. @param {import("node:test").TestContext} t @param {{ nodes?: number, shards?: number, flags?: string[] }} [o] */
export async function cluster(t, o = {}) {
	const n = o.nodes ?? 3;
	const reserved = await ports(10 * n);
	const dir = mkdtempSync(join(tmpdir(), "millrace-nodes-"));
	const c = new Cluster(dir, o.shards ?? 2, o.flags ?? []);
	atEnd(t, async () => {
		await Promise.all(c.nodes.map((m) => m.stop("SIGKILL")));
		reserved.release();
		rmSync(dir, { recursive: true, force: true });
	});
	return c.start(n, reserved.first);
}
