import { once } from "node:events";
import { Worker as Thread } from "node:worker_threads";
import { expect, it } from "vitest";
import { newId } from "../src/core/place.js";
import { Renewer } from "../src/core/renewer.js";

// A server of heartbeats in a thread of its own, as this loop will be blocked. It counts the holds that came, and notes their ids.
const server = `
const { parentPort, workerData } = require("node:worker_threads");
const count = new Int32Array(workerData);
const seen = new Set();
const server = require("node:http2").createServer();
server.on("stream", (s) => {
	const parts = [];
	s.on("data", (b) => parts.push(b));
	s.on("end", () => {
		for (const id of Buffer.concat(parts).toString("latin1").match(/[0-9A-HJKMNP-TV-Z]{26}/g)) seen.add(id);
		s.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
		s.on("wantTrailers", () => s.sendTrailers({ "grpc-status": "0" }));
		s.end(Buffer.alloc(5));
		Atomics.store(count, 0, seen.size);
		Atomics.notify(count, 0);
	});
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
parentPort.on("message", () => parentPort.postMessage([...seen]));
`;

it("renews all leases that are held while the loop is blocked, and none that was removed", async () => {
	const memory = new SharedArrayBuffer(4);
	const count = new Int32Array(memory);
	const thread = new Thread(server, { eval: true, workerData: memory });
	const [port] = (await once(thread, "message")) as [number];
	const r = new Renewer({
		addresses: [`127.0.0.1:${port}`],
		token: "t",
		namespace: "n",
		tls: undefined,
		stall: 600_000,
		logger: console,
		lost: () => {},
	});
	// More than one piece of shared memory has.
	const ids = Array.from({ length: 3000 }, () => newId());
	for (const [i, id] of ids.entries()) r.add(id, BigInt(i), 600, "k", 0);
	for (const [i, id] of ids.entries()) {
		if (i % 3 === 0) r.remove(id, BigInt(i));
		else if (i % 3 === 1) r.remove(id, BigInt(i + 1)); // another lease of the same task, which is not held
	}
	const rest = ids.filter((_, i) => i % 3 !== 0);
	// The tables are there once a message has come after theirs.
	await new Promise((resolve) => setImmediate(resolve));
	for (let n = 0; n < rest.length; n = Atomics.load(count, 0)) {
		expect(Atomics.wait(count, 0, n, 30_000)).not.toBe("timed-out");
	}
	thread.postMessage("");
	const [seen] = (await once(thread, "message")) as [string[]];
	expect(new Set(seen)).toEqual(new Set(rest));
	await r.close();
	await thread.terminate();
});
