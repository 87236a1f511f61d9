// What a newer server says of a message and the contract here does not. Of messages that are read and written back, as the contract marks them, it is
// kept next to their fields, in the form of the way that it came by. The other way refuses it.
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { invalid } from "../errors.js";
import { kept } from "../gen/rest.js";
import type { Codec } from "./transport.js";

interface Besides {
	/** Of REST: members by name, as they stand in JSON. */
	members: Map<string, string>;
	/** Of gRPC: fields as they are encoded, by the key of the field that they are within; empty: they are of the message itself. */
	fields: Map<string, Uint8Array>;
}

const besides = Symbol("besides");
type Kept = { [besides]?: Besides };

function of(m: object): Besides {
	const own = m as Kept;
	own[besides] ??= { members: new Map(), fields: new Map() };
	return own[besides];
}

/** The members that REST told. */
export const membersOf = (m: object): ReadonlyMap<string, string> => (m as Kept)[besides]?.members ?? new Map();

/** Whether there are fields that gRPC told. */
export const hasFields = (m: object): boolean => ((m as Kept)[besides]?.fields.size ?? 0) > 0;

/** Keeps a member. */
export function keep(m: object, name: string, raw: string): void {
	of(m).members.set(name, raw);
}

/** Drops what was kept of a field that gets another value. */
export function forget(m: object, key: string): void {
	(m as Kept)[besides]?.members.delete(key);
	(m as Kept)[besides]?.fields.delete(key);
}

/** The fields of an encoded message that the contract does not have. What stands behind a message is merged into it, so they can follow the others. */
function unknownIn(type: string, bytes: Uint8Array): Map<string, Uint8Array> {
	const parts = new Map<string, Uint8Array[]>();
	const r = new BinaryReader(bytes);
	while (r.pos < r.len) {
		const begin = r.pos;
		const [number, wireType] = r.tag();
		const [key = "", within] = kept[type]![number]?.split(":") ?? [];
		let found: Uint8Array | undefined;
		if (within) {
			const inner = [...unknownIn(within, r.bytes()).values()];
			if (inner.length > 0) found = lengthy(number, Buffer.concat(inner));
		} else {
			r.skip(wireType, number);
			if (!key) found = bytes.subarray(begin, r.pos);
		}
		if (found) parts.set(key, [...(parts.get(key) ?? []), found]);
	}
	return new Map([...parts].map(([key, list]) => [key, Buffer.concat(list)]));
}

const lengthy = (number: number, bytes: Uint8Array): Uint8Array =>
	new BinaryWriter()
		.uint32((number << 3) | 2)
		.bytes(bytes)
		.finish();

/** The codec of a message that has, as the field key of a number, one of a type of which all is kept. */
export function keeping<T extends object>(codec: Codec<T>, key: keyof T, number: number, type: string): Codec<T> {
	return {
		encode(m) {
			const w = codec.encode(m);
			const b = (m[key] as Kept | undefined)?.[besides];
			if (!b) return w;
			if (b.members.size > 0) throw invalid(String(key), "has a field that is not known, which gRPC cannot carry");
			return { finish: () => Buffer.concat([w.finish(), lengthy(number, Buffer.concat([...b.fields.values()]))]) };
		},
		decode(input) {
			const m = codec.decode(input);
			const r = new BinaryReader(input);
			while (r.pos < r.len) {
				const [n, wireType] = r.tag();
				if (n !== number) r.skip(wireType, n);
				else for (const [at, bytes] of unknownIn(type, r.bytes())) of(m[key] as object).fields.set(at, bytes);
			}
			return m;
		},
	};
}
