import type { Schemas } from "./api/client";
import { many, parseTime, size, span } from "./format";

export type Node = Schemas["ClusterNode"];
export type Shard = Schemas["ClusterShard"];
export type Link = Schemas["ClusterLink"];
export type Loss = Schemas["ClusterLoss"];
export type Status = Schemas["ClusterStatusResponse"];

/** fromRows puts the rows of the topic "cluster" together; each has one part of the status. */
export function fromRows(rows: readonly Record<string, unknown>[]): Status {
	const of = <T>(field: string): T[] => rows.filter((r) => field in r).map((r) => r[field] as T);
	return {
		...of<Status>("cluster")[0],
		nodes: of<Node>("node").sort((a, b) => (a.id ?? 0) - (b.id ?? 0)),
		shards: of<Shard>("shard").sort((a, b) => (a.shard ?? 0) - (b.shard ?? 0)),
		links: of<Link>("link"),
		if_lost: of<Loss>("loss"),
	};
}

/** Alarm is what a person has to look at. */
export interface Alarm {
	/** Something does not work; else it may come to that. */
	bad: boolean;
	text: string;
}

/** A node this many entries behind is told of. */
export const lagMost = 1000;
/** A certificate is told of this long before it ends. */
export const certSoon = 14 * 24 * 3_600_000;
/** A sync that takes longer than this is slow: every write waits for it. In microseconds. */
export const slowSync = 20_000;

export const nameOf = (nodes: readonly Node[], id: number | undefined): string =>
	nodes.find((n) => n.id === id)?.name ?? `n${id}`;

/** partitionNames names what lies on a shard, in short. */
export function partitionNames(s: Shard, most = 6): string {
	const all = s.partitions ?? [];
	const names = all.slice(0, most).map((p) => `${p.namespace} p${p.partition}`);
	const rest = (s.partition_count ?? all.length) - names.length;
	return names.join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}

/** alarms are what is wrong, the worst first, and what the server warns of. now is the server's time. */
export function alarms(s: Status, now: number): Alarm[] {
	const bad: string[] = [];
	const warn: string[] = [];
	const nodes = s.nodes ?? [];
	for (const shard of s.shards ?? []) {
		if (shard.leader) continue;
		const stops = partitionNames(shard);
		bad.push(`Shard ${shard.shard} has no leader${stops ? `: nothing is written to ${stops}` : ""}.`);
	}
	for (const n of nodes) {
		if (n.reachable) continue;
		const why = n.error?.replace(/^node \d+ is not reached: /, "");
		bad.push(`${n.name} is not reached${why ? `: ${why}` : ""}.`);
	}
	for (const n of nodes) {
		if (!n.reachable) continue;
		if (n.disk?.full) bad.push(`The disk of ${n.name} is full: writes that need room are refused.`);
		else if (n.disk?.size && (n.disk.free ?? 0) < Math.max(2 * (n.disk.reserve ?? 0), n.disk.size / 20))
			warn.push(`The disk of ${n.name} has ${size(n.disk.free)} left; at ${size(n.disk.reserve)} writes are refused.`);
		const ends = parseTime(n.cert_ends_at);
		if (ends !== undefined && ends <= now) bad.push(`The certificate of ${n.name} has ended.`);
		else if (ends !== undefined && ends - now < certSoon)
			warn.push(`The certificate of ${n.name} ends in ${span(ends - now)}.`);
		if ((n.lag ?? 0) > lagMost) warn.push(`${n.name} is ${many(n.lag, "entry", "entries")} behind.`);
		if ((n.fsync_us?.p99 ?? 0) > slowSync)
			warn.push(`The disk of ${n.name} is slow: one sync in a hundred takes ${ms(n.fsync_us?.p99)} or more.`);
		if (n.durability === "none")
			warn.push(`${n.name} does not wait for its disk: a power cut loses acknowledged writes.`);
		if (n.unready) warn.push(`${n.name} does not serve all it should: ${n.unready}.`);
	}
	const down = nodes.filter((n) => !n.reachable).length;
	const led = (s.shards ?? []).filter((shard) => shard.leader).length;
	if (down > 0 && led > 0) {
		const stopping = (s.if_lost ?? []).filter((l) => l.shards?.length).map((l) => nameOf(nodes, l.node));
		const what = led < (s.shards ?? []).length ? "Writes to other shards" : "Writes";
		if (stopping.length > 0) warn.push(`${what} go on, and stop if ${stopping.join(" or ")} fails too.`);
	}
	for (const w of s.warnings ?? []) if (!bad.includes(w) && !warn.includes(w)) warn.push(w);
	return [...bad.map((text) => ({ bad: true, text })), ...warn.map((text) => ({ bad: false, text }))];
}

/** ms writes microseconds as milliseconds. */
export function ms(us: number | undefined): string {
	if (us === undefined) return "–";
	const n = us / 1000;
	return `${n < 0.1 ? n.toFixed(2) : n < 10 ? n.toFixed(1) : Math.round(n)} ms`;
}

/** replicaOf is how a shard stands on a node; undefined where that is not known. */
export function replicaOf(n: Node, shard: number | undefined): Schemas["ClusterReplica"] | undefined {
	return n.reachable ? n.replicas?.find((r) => r.shard === shard) : undefined;
}
