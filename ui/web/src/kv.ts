import { createQuerySerializer } from "openapi-fetch";
import { api, call, type Schemas } from "./api/client";
import { ApiError, asApiError } from "./api/errors";
import { bytesOf, inAddress, toBase64 } from "./key-text";

/** A page of a list of keys. */
export const pageKeys = 200;
/** A list shows this many bytes of each value. */
const headBytes = 256;

type At = NonNullable<Schemas["KeyPage"]["at"]>[number];

/** Pair is a key of a list. */
interface Pair {
	key: Uint8Array;
	/** The value, or its first bytes. */
	head: Uint8Array;
	/** Bytes of the value. */
	size: number;
	rev: string;
}

interface KeyPage {
	/** What stands for several keys each: up to the delimiter, and with it. */
	prefixes: Uint8Array[];
	pairs: Pair[];
	cursor: string | undefined;
	at: At[];
}

/**
 * withPrefix writes the query of a route, with a prefix of any bytes: the client's own way takes text, and loses bytes that are not UTF-8.
 */
const withPrefix = (prefix: Uint8Array) => (query: object | undefined) =>
	`${createQuerySerializer()(query)}&prefix=${inAddress(prefix)}`;

/** listKeys reads a page of the keys that begin with a prefix, folded at "/". */
export async function listKeys(
	ns: string,
	keyspace: string,
	prefix: Uint8Array,
	cursor: string,
	fold: boolean,
): Promise<KeyPage> {
	const a = await call(
		api.GET("/v1/kv/{keyspace}", {
			params: {
				path: { keyspace },
				query: {
					ns,
					limit: pageKeys,
					head: headBytes,
					...(cursor ? { cursor } : {}),
					...(fold ? { delimiter: "/" } : {}),
				},
			},
			querySerializer: withPrefix(prefix),
		}),
	);
	return {
		prefixes: (a.prefixes ?? []).map((p) => bytesOf(p.prefix, p.prefix_base64)),
		pairs: (a.items ?? []).map((i) => {
			const head = bytesOf(i.value, i.value_base64);
			return { key: bytesOf(i.key, i.key_base64), head, size: i.size ?? head.length, rev: i.rev ?? "" };
		}),
		cursor: a.cursor || undefined,
		at: a.at ?? [],
	};
}

export interface Value {
	bytes: Uint8Array<ArrayBuffer>;
	rev: string;
	at: At[];
	/** The task that wrote it last; undefined where none was kept. */
	writer: Schemas["KeyWriter"] | undefined;
}

/**
 * readValue reads a key as its leader has it, and where no node leads as the node that is asked has it; undefined where it is absent. A body
 * carries every key, also those that no address can.
 */
export async function readValue(ns: string, keyspace: string, key: Uint8Array): Promise<Value | undefined> {
	const read = (stale: boolean) =>
		call(
			api.POST("/v1/kv/{keyspace}/get", {
				params: { path: { keyspace }, query: { ns } },
				body: { keys_base64: [toBase64(key)], ...(stale ? { stale } : {}) },
			}),
		);
	const a = await read(false).catch((e) => (asApiError(e).unled ? read(true) : Promise.reject(e)));
	const r = a.results?.[0];
	if (!r) throw new ApiError(0, { code: "UNAVAILABLE", message: "the answer has no result" });
	if (!r.found) return undefined;
	return { bytes: bytesOf(r.value, r.value_base64), rev: r.rev ?? "", at: a.at ?? [], writer: r.writer };
}

/** putValue stores a value. rev is the revision that the key must have: "0" is absent, undefined any. */
export function putValue(
	ns: string,
	keyspace: string,
	key: Uint8Array,
	value: Uint8Array,
	rev: string | undefined,
	requestId: string,
) {
	return call(
		api.POST("/v1/commit", {
			params: { query: { ns } },
			body: {
				request_id: requestId,
				ops: [
					{
						kv_put: {
							keyspace,
							key_base64: toBase64(key),
							value_base64: toBase64(value),
							...(rev === undefined ? {} : { if_rev: rev }),
						},
					},
				],
			},
		}),
	);
}

/** deleteKey removes a key at a revision. */
export function deleteKey(ns: string, keyspace: string, key: Uint8Array, rev: string, requestId: string) {
	return call(
		api.POST("/v1/commit", {
			params: { query: { ns } },
			body: {
				request_id: requestId,
				ops: [{ kv_delete: { keyspace, key_base64: toBase64(key), if_rev: rev } }],
			},
		}),
	);
}

/** deleteRange removes all keys that begin with a prefix, in each partition at once. Asking again is safe: it asks for a state. */
export async function deleteRange(ns: string, keyspace: string, prefix: Uint8Array): Promise<number> {
	const a = await call(
		api.DELETE("/v1/kv/{keyspace}", {
			params: { path: { keyspace }, query: { ns, count: "true" } },
			querySerializer: withPrefix(prefix),
		}),
	);
	return a.count ?? 0;
}

/** At most this many keys are looked at before a range is deleted. */
export const dryRunKeys = 1000;

/** countKeys counts the keys that begin with a prefix, up to dryRunKeys. */
export async function countKeys(ns: string, keyspace: string, prefix: Uint8Array) {
	const a = await call(
		api.GET("/v1/kv/{keyspace}", {
			params: { path: { keyspace }, query: { ns, limit: dryRunKeys, keys_only: "true" } },
			querySerializer: withPrefix(prefix),
		}),
	);
	return { count: a.items?.length ?? 0, more: !!a.cursor, at: a.at ?? [] };
}

/** stamp says where in the log an answer stands: "p0@98213". */
export function stamp(at: readonly At[]): string {
	return at.map((p) => `p${p.partition ?? 0}@${p.index ?? ""}`).join(" ");
}

/** imageType tells by its first bytes of which kind an image is. SVG is text, and can hold scripts: it is never shown as an image. */
export function imageType(bytes: Uint8Array): string | undefined {
	const begins = (...b: number[]) => b.every((v, i) => bytes[i] === v);
	const word = (from: number, text: string) => [...text].every((c, i) => bytes[from + i] === c.charCodeAt(0));
	if (begins(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "image/png";
	if (begins(0xff, 0xd8, 0xff)) return "image/jpeg";
	if (word(0, "GIF87a") || word(0, "GIF89a")) return "image/gif";
	if (word(0, "RIFF") && word(8, "WEBP")) return "image/webp";
	if (word(4, "ftypavif")) return "image/avif";
	return undefined;
}
