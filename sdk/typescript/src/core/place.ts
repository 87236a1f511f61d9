// Ids of tasks, and which partition a key or a task belongs to. proto/conformance holds this to what servers compute.
import { randomFillSync } from "node:crypto";

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

/** The id with partition bits and random bits that both name a partition. */
export function placedId(id: TaskId, partition: number, partitions: number): TaskId {
	let lo = id.lo;
	if (partitions > 1) {
		const p = BigInt(partitions);
		lo -= lo % p;
		if (lo > mask64 - p) lo -= p;
		lo += BigInt(partition);
	}
	return { hi: (id.hi & ~(0xfffn << 4n)) | (BigInt(partition & 0xfff) << 4n), lo };
}

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

/** Makes a task id, as 26 characters of base32 whose order is that of time. */
export function newId(): string {
	const now = Date.now();
	const r = random(10);
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
	// The others are the 12 bits of the partition, which are 0, and 68 random ones.
	let out = timePart;
	let bits = 0;
	let have = 12;
	let at = 0;
	bits = (bits << 4) | (r[at++]! & 15);
	have += 4;
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

const basis = 14695981039346656037n;
const prime = 1099511628211n;

/** The partition of a text: FNV-1a of 64 bits, modulo. */
export function placeOfText(text: string | Uint8Array, partitions: number): number {
	if (partitions <= 1) return 0;
	let h = basis;
	for (const b of typeof text === "string" ? Buffer.from(text) : text) h = ((h ^ BigInt(b)) * prime) & mask64;
	return Number(h % BigInt(partitions));
}

/** The partition of a key: by the text in its first pair of braces that is not empty, else by the key. */
export function placeOfKey(key: string | Uint8Array, partitions: number): number {
	if (partitions <= 1) return 0;
	const bytes = typeof key === "string" ? Buffer.from(key) : Buffer.from(key);
	const open = bytes.indexOf(0x7b);
	const close = open < 0 ? -1 : bytes.indexOf(0x7d, open);
	return placeOfText(close > open + 1 ? bytes.subarray(open + 1, close) : bytes, partitions);
}
