// How arguments and results become bytes, and back.
import { isUtf8 } from "node:buffer";
import { MillraceError } from "./errors.js";

/** Turns values into bytes and back, for jobs whose values JSON does not carry, such as numbers beyond 2^53. */
export interface Codec<T> {
	/** Such as application/json. */
	contentType: string;
	encode(value: T): Uint8Array;
	decode(bytes: Uint8Array): T;
}

export interface Content {
	bytes: Buffer;
	type: string;
}

const json = "application/json";
const text = "text/plain; charset=utf-8";
const binary = "application/octet-stream";

/**
 * Bytes are written as base64 within JSON, times as RFC 3339, as the other SDKs write them. What JSON.stringify writes as null or as an
 * empty object, and so loses, is refused.
 */
function replaced(this: unknown, key: string, value: unknown): unknown {
	const raw = (this as Record<string, unknown>)[key];
	if (raw instanceof Uint8Array) return Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString("base64");
	if (typeof value === "bigint") {
		if (value > BigInt(Number.MAX_SAFE_INTEGER) || value < -BigInt(Number.MAX_SAFE_INTEGER)) {
			throw new TypeError("a number beyond 2^53 needs a codec of the job's own");
		}
		return Number(value);
	}
	if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} cannot be written as JSON`);
	if (value === null && raw instanceof Date) throw new TypeError("a time that is not valid cannot be written as JSON");
	if (value instanceof Map || value instanceof Set || value instanceof ArrayBuffer || typeof value === "function") {
		throw new TypeError(`a value of the type ${value.constructor.name} cannot be written as JSON`);
	}
	return value;
}

/** Encodes a value: text and bytes as they are, all else by the codec, which is JSON where the job names none. */
export function encode(value: unknown, codec: Codec<unknown> | undefined, what: string): Content {
	try {
		if (codec) return { bytes: Buffer.from(codec.encode(value)), type: codec.contentType };
		if (typeof value === "string") return { bytes: Buffer.from(value), type: text };
		if (value instanceof Uint8Array) return { bytes: Buffer.from(value), type: binary };
		return { bytes: Buffer.from(JSON.stringify(value === undefined ? null : value, replaced)), type: json };
	} catch (cause) {
		throw new MillraceError({
			code: "INVALID_ARGUMENT",
			field: what,
			message: `${what}: cannot be encoded: ${cause instanceof Error ? cause.message : cause}`,
			outcome: "refused",
			cause,
		});
	}
}

/** Reads what encode wrote, by the type that stands with it; empty is JSON. */
export function decode(bytes: Uint8Array, type: string, codec: Codec<unknown> | undefined): unknown {
	if (codec) return codec.decode(bytes);
	const b = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const media = type === json ? json : type.split(";", 1)[0]!.trim().toLowerCase();
	const isText = media.startsWith("text/");
	if (!isText && media !== "" && media !== json && !media.endsWith("+json")) return b;
	if (!isUtf8(b)) throw new TypeError("it must be UTF-8");
	const s = b.toString("utf8");
	if (isText) return s;
	return s === "" ? undefined : JSON.parse(s);
}

/** The bytes of a key or a value: text as UTF-8. */
export const bytesOf = (v: string | Uint8Array): Buffer => (typeof v === "string" ? Buffer.from(v) : Buffer.from(v));

/** What is stored under a key: text and bytes as they are, all else as JSON. */
export const valueBytes = (v: unknown): Buffer => encode(v, undefined, "value").bytes;
