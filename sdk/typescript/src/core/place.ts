// Ids of tasks, and which partition a key or a task belongs to. proto/conformance holds this to what servers compute.
import { randomFillSync } from "node:crypto";
import type { Fault } from "../errors.js";
import type { KVCheck, KVDeleteRange, Op, TaskSpec } from "../gen/millrace/v1/task.js";

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const mask64 = (1n << 64n) - 1n;

/** A task's id as numbers: 48 bits of milliseconds, 12 of partition and 4 random ones, then 64 random ones. */
export interface TaskId {
	hi: bigint;
	lo: bigint;
}

export function parseId(text: string): TaskId | undefined {
	if (text.length !== 26) return undefined;
	let value = 0n;
	for (let i = 0; i < 26; i++) {
		const d = digits.indexOf(text[i]!.toUpperCase());
		if (d < 0 || (i === 0 && d > 7)) return undefined;
		value = (value << 5n) | BigInt(d);
	}
	return { hi: value >> 64n, lo: value & mask64 };
}

export function formatId(id: TaskId): string {
	let value = (id.hi << 64n) | id.lo;
	const out = new Array<string>(26);
	for (let i = 25; i >= 0; i--) {
		out[i] = digits[Number(value & 31n)]!;
		value >>= 5n;
	}
	return out.join("");
}

export const partitionOf = (id: TaskId): number => Number((id.hi >> 4n) & 0xfffn);

/** The partition that an id puts a task in when nothing else does. */
export const homeOf = (id: TaskId, partitions: number): number =>
	partitions <= 1 ? 0 : Number(id.lo % BigInt(partitions));

/** The low random bits whose remainder is the partition. All else of them is kept. */
export function placedLow(lo: bigint, partition: number, partitions: number): bigint {
	if (partitions <= 1) return lo;
	const p = BigInt(partitions);
	let floor = lo - (lo % p);
	if (floor > mask64 - p) floor -= p; // the last stretch is shorter
	return floor + BigInt(partition);
}

/** The id with other partition bits. */
export const withBits = (id: TaskId, partition: number): TaskId => ({
	hi: (id.hi & ~(0xfffn << 4n)) | (BigInt(partition & 0xfff) << 4n),
	lo: id.lo,
});

// Random bytes are drawn many at a time: each draw costs more than the bytes.
const pool = Buffer.alloc(4096);
let used = pool.length;

function random(n: number): Buffer {
	if (used + n > pool.length) {
		randomFillSync(pool);
		used = 0;
	}
	used += n;
	return pool.subarray(used - n, used);
}

/** 16 random bytes of their own. */
export const random16 = (): Buffer => Buffer.from(random(16));

let lastMs = 0;
let timePart = "";

/** Makes a task id, as 26 characters of base32 whose order is that of time. Its partition is open. */
export const newId = (): string => written(0, random(9));

/** Makes a task id of a partition. */
export function idIn(partition: number, partitions: number): string {
	if (partitions <= 1) return newId();
	const r = random(9);
	r.writeBigUInt64BE(placedLow(r.readBigUInt64BE(1), partition, partitions), 1);
	return written(partition, r);
}

/** Writes an id of now: the partition in 12 bits, then the lowest 68 bits of r. */
function written(partition: number, r: Uint8Array): string {
	const now = Date.now();
	// The first ten characters are the time.
	if (now !== lastMs) {
		lastMs = now;
		timePart = "";
		let value = now;
		for (let i = 0; i < 10; i++) {
			timePart = digits[value % 32] + timePart;
			value = Math.floor(value / 32);
		}
	}
	let out = timePart;
	let at = 0;
	let bits = (partition << 4) | (r[at++]! & 15);
	let have = 16;
	while (out.length < 26) {
		while (have < 5) {
			bits = (bits << 8) | r[at++]!;
			have += 8;
		}
		out += digits[(bits >>> (have - 5)) & 31];
		have -= 5;
		bits &= (1 << have) - 1;
	}
	return out;
}

/** The partition of a text: FNV-1a of 64 bits, modulo. The hash is in two halves of 32 bits, which need no bigint. */
export function placeOfText(text: string | Uint8Array, partitions: number): number {
	if (partitions <= 1) return 0;
	let hi = 0xcbf29ce4;
	let lo = 0x84222325;
	for (const b of typeof text === "string" ? Buffer.from(text) : text) {
		lo = (lo ^ b) >>> 0;
		// The prime is 2^40 + 435.
		const low = lo * 435;
		hi = (hi * 435 + Math.floor(low / 2 ** 32) + ((lo << 8) >>> 0)) % 2 ** 32;
		lo = low % 2 ** 32;
	}
	return ((hi % partitions) * (2 ** 32 % partitions) + (lo % partitions)) % partitions;
}

/** The text in the first pair of braces; undefined: there is none, or it is empty. */
function tagOf(key: Uint8Array): Uint8Array | undefined {
	const open = key.indexOf(0x7b);
	const close = open < 0 ? -1 : key.indexOf(0x7d, open);
	return close > open + 1 ? key.subarray(open + 1, close) : undefined;
}

/** The partition of a key: by the text in its first pair of braces that is not empty, else by the key. */
export function placeOfKey(key: string | Uint8Array, partitions: number): number {
	if (partitions <= 1) return 0;
	const bytes = Buffer.from(key as string);
	return placeOfText(tagOf(bytes) ?? bytes, partitions);
}

/** The partition that an id names; below 0 for a text that is not an id of this namespace, which the server judges. */
export function placeOfId(id: string, partitions: number): number {
	if (partitions <= 1) return 0;
	const parsed = parseId(id);
	const p = parsed ? partitionOf(parsed) : partitions;
	return p < partitions ? p : -1;
}

/** The partition that a task says by its tag, key, unique key, batch or id, in this order; below 0: it says none. */
export function placeOfTask(s: TaskSpec, partitions: number, pins = noPins): number {
	if (partitions <= 1) return 0;
	if (isPinned(s, pins)) return pinned;
	const text = s.tag || s.key || s.unique?.key;
	if (text) return placeOfText(text, partitions);
	if (s.batch) return placeOfId(s.batch, partitions);
	const id = s.id ? parseId(s.id) : undefined;
	if (id) return homeOf(id, partitions);
	return s.after[0] ? placeOfId(s.after[0].id, partitions) : -1;
}

/** The partition of all tasks of a queue that is bounded or ordered as a whole. */
export const pinned = 0;

/** For each queue of which it is known, whether it is pinned so. */
export type Pins = ReadonlyMap<string, boolean>;

const noPins: Pins = new Map();

/** Whether a task is placed by its queue. A tag or a batch that says otherwise is left to the server. */
export const isPinned = (s: TaskSpec, pins: Pins): boolean => !s.tag && !s.batch && pins.get(s.queue) === true;

/** Whether a task has an id of another partition than its queue says. */
export const isMisplaced = (s: TaskSpec, partitions: number, pins: Pins): boolean =>
	isPinned(s, pins) && placeOfId(s.id, partitions) !== pinned;

const stray = (field: string, message: string): Fault => ({
	code: "WRONG_PARTITION",
	field,
	message,
	outcome: "refused",
});

/**
 * Places a task: by its tag, else its key, else its unique key, else its batch, else its id, else in home. It gives the task an id there when it has
 * none, and fills in the partition bits of one that leaves them open. Returns the partition, or why there is none. A pinned queue
 * says it before all of these but a tag and a batch: the id names that partition, and its random bits count for nothing.
 */
export function placeTask(s: TaskSpec, partitions: number, home: number, pins = noPins): number | Fault {
	if (partitions <= 1) {
		if (!s.id) s.id = newId();
		return 0;
	}
	if (isPinned(s, pins)) {
		if (!s.id) s.id = idIn(pinned, partitions);
		const id = parseId(s.id);
		if (!id || partitionOf(id) === pinned) return pinned;
		return stray("id", `names partition ${partitionOf(id)}, and the task's queue partition ${pinned}`);
	}
	const text = s.tag || s.key || s.unique?.key;
	let place = text ? placeOfText(text, partitions) : home;
	if (!text && s.batch) place = Math.max(placeOfId(s.batch, partitions), 0); // the server refuses one that names none
	const said = text || s.batch;
	if (!s.id) {
		if (s.after[0] && !said) {
			const others = placeOfId(s.after[0].id, partitions); // those that a task waits for are of its partition
			if (others >= 0) place = others;
		}
		s.id = idIn(place, partitions);
		return place;
	}
	const id = parseId(s.id);
	if (!id) return Math.max(place, 0); // the server says what is wrong
	if (!said) place = homeOf(id, partitions);
	const named = partitionOf(id);
	if (named === place) return place;
	if (named === 0) {
		s.id = formatId(withBits(id, place));
		return place;
	}
	const by = s.tag ? "tag" : s.key ? "key" : text ? "unique.key" : said ? "batch" : "random bits";
	return stray("id", `names partition ${named}, and the task's ${by} partition ${place}`);
}

/** The partition of the keys of a range: that of the closed {tag} that all of them share; below 0 when they may be of several. */
export function placeOfRange(r: KVDeleteRange, partitions: number): number {
	if (partitions <= 1) return 0;
	let shared: Uint8Array = r.prefix;
	if (shared.length === 0) {
		let n = 0;
		while (n < r.from.length && n < r.to.length && r.from[n] === r.to[n]) n++;
		shared = r.from.subarray(0, n);
	}
	const tag = tagOf(shared);
	return tag ? placeOfText(tag, partitions) : -1;
}

/** The partition of a repository: by its tag, else by its name. */
export const placeOfRepo = (name: string, tag: string, partitions: number): number =>
	placeOfText(tag || name, partitions);

/** The partition that an op says it belongs to; below 0 when it says none, or is for the server to judge. */
export function placeOfOp(op: Op, partitions: number, pins = noPins): number {
	const x = op.op;
	switch (x?.$case) {
		case "kvPut":
		case "kvDelete":
		case "kvCheck":
		case "kvAdd":
			return placeOfKey(x.value.key, partitions);
		case "kvDeleteRange":
			return placeOfRange(x.value, partitions);
		case "vectorUpsert":
			return placeOfKey(x.value.point?.id ?? "", partitions);
		case "vectorDelete":
			return placeOfKey(x.value.id, partitions);
		case "taskCreate":
			return placeOfTask(x.value, partitions, pins);
		case "taskComplete":
		case "taskFail":
		case "taskSnooze":
			return placeOfId(x.value.task?.id ?? "", partitions);
		case "taskCancel":
		case "batchOpen":
		case "batchSeal":
		case "batchCancel":
			return placeOfId(x.value.id, partitions);
		case "refTransaction":
			return placeOfRepo(x.value.repo, x.value.tag, partitions);
	}
	return -1;
}

/**
 * The one partition of a commit: home, or where its first part says when home is below 0. A commit with parts of another one is refused, and
 * all ops that stray are named, so that one answer is enough to mend it.
 */
export function placeOfCommit(
	conditions: readonly KVCheck[],
	ops: readonly Op[],
	partitions: number,
	home: number,
	pins = noPins,
): number | Fault {
	if (partitions <= 1) return 0;
	const places = ops.map((op) => placeOfOp(op, partitions, pins));
	let place = home;
	// An op that says no place, such as a range without a tag, goes wherever the others do.
	if (place < 0) place = places.find((p) => p >= 0) ?? -1;
	if (place < 0 && conditions.length > 0) place = placeOfKey(conditions[0]!.key, partitions);
	const away = places.flatMap((p, i) => (p < 0 || p === place ? [] : [i]));
	if (away.length > 0) {
		return {
			code: "WRONG_PARTITION",
			op: away[0]!,
			message: `outside the commit's partition ${place}: ${away.map((i) => `ops[${i}] of partition ${places[i]}`).join(", ")}`,
			details: { ops: away.join(",") },
			outcome: "refused",
		};
	}
	for (const [i, c] of conditions.entries()) {
		const p = placeOfKey(c.key, partitions);
		if (p !== place) {
			return {
				...stray(`conditions[${i}].key`, `is of partition ${p}, and the commit of partition ${place}`),
				op: -2 - i,
			};
		}
	}
	return Math.max(place, 0);
}
