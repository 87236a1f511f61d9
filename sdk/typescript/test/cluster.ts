// A cluster of three nodes on this machine.
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/**
 * Takes ports on which nothing listens, by the UDP sockets of the same numbers, as the tests of all languages do. The kernel draws none of
 * them by itself. They are free again when the sockets are closed.
 */
async function reserve(n: number): Promise<Socket[]> {
	const held: Socket[] = [];
	while (held.length < n) {
		const port = 10_000 + Math.floor(Math.random() * 22_700);
		const lock = createSocket("udp4");
		const bound = await new Promise<boolean>((done) => {
			lock.once("error", () => done(false)); // another test has it
			lock.bind({ port, address: "127.0.0.1", exclusive: true }, () => done(true));
		});
		if (bound && (await unused(port))) held.push(lock.unref());
		else lock.close();
	}
	return held;
}

function unused(port: number): Promise<boolean> {
	return new Promise((done) => {
		const s = connect({ port, host: "127.0.0.1" });
		s.once("connect", () => {
			s.destroy();
			done(false);
		});
		s.once("error", (e: NodeJS.ErrnoException) => done(e.code === "ECONNREFUSED"));
	});
}

export class Node {
	#child: ChildProcess | undefined;
	#over: Promise<unknown> | undefined;

	constructor(
		readonly address: string,
		readonly binary: string,
		readonly flags: string[],
	) {}

	/** Starts the process, and resolves when it serves. */
	async start(): Promise<void> {
		const child = spawn(this.binary, this.flags, { stdio: ["ignore", "pipe", "ignore"] });
		this.#child = child;
		const over = new Promise((resolve) => child.once("exit", resolve));
		this.#over = over;
		await new Promise<void>((resolve, reject) => {
			void over.then(() => reject(new Error(`the node ${this.address} ended before it served`)));
			createInterface({ input: child.stdout! }).on("line", () => resolve());
		});
	}

	async kill(): Promise<void> {
		this.#child?.kill("SIGCONT");
		this.#child?.kill("SIGKILL");
		await this.#over;
	}

	pause(): void {
		this.#child?.kill("SIGSTOP");
	}

	resume(): void {
		this.#child?.kill("SIGCONT");
	}
}

export class Cluster {
	readonly nodes: Node[] = [];
	readonly token: string;
	readonly #reserved: Socket[] = [];
	readonly #dir = mkdtempSync(join(tmpdir(), "millrace-"));

	/** Makes a cluster, which start starts. */
	private constructor(readonly binary: string) {
		const made = join(this.#dir, "init");
		execFileSync(binary, ["cluster", "init", "--json", "--nodes", "3", "--shards", "3", "--dir", made]);
		this.token = readFileSync(join(made, "token"), "utf8").trim();
	}

	static async start(binary: string): Promise<Cluster> {
		const c = new Cluster(binary);
		c.#reserved.push(...(await reserve(6)));
		const ports = c.#reserved.map((lock) => `127.0.0.1:${lock.address().port}`);
		const peers = [0, 1, 2].map((i) => `${i + 1}=${ports[i]}/${ports[i + 3]}`).join(",");
		for (let i = 0; i < 3; i++) {
			const config = join(c.#dir, "init", `n${i + 1}`, "millrace.yaml");
			c.nodes.push(
				new Node(ports[i + 3]!, binary, [
					"serve",
					"--json",
					"--config",
					config,
					"--listen",
					ports[i + 3]!,
					"--http",
					"off",
					"--admin",
					"off",
					"--peer-listen",
					ports[i]!,
					"--peers",
					peers,
					"--memory",
					"256MiB",
				]),
			);
		}
		await Promise.all(c.nodes.map((n) => n.start()));
		return c;
	}

	get url(): string {
		return this.nodes.map((n) => n.address).join(",");
	}

	/** Makes a namespace, once a leader is there. */
	async namespace(name: string, partitions: number): Promise<void> {
		const at = ["--server", this.nodes[0]!.address, "--token", this.token];
		for (;;) {
			const made = await new Promise<boolean>((resolve) => {
				execFile(this.binary, ["namespace", "create", name, "--partitions", String(partitions), ...at], (e) =>
					resolve(e === null),
				);
			});
			if (made) return;
		}
	}

	async stop(): Promise<void> {
		await Promise.all(this.nodes.map((n) => n.kill()));
		for (const lock of this.#reserved) lock.close();
		rmSync(this.#dir, { recursive: true, force: true });
	}
}
