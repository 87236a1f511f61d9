// What gRPC puts into HTTP/2: messages with their prefix, times, and the status of a call. Nothing here knows of connections.
import type { IncomingHttpHeaders } from "node:http2";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type Code, type Fault, faultOf } from "../errors.js";
import { Error as WireError } from "../gen/millrace/v1/task.js";

/** The codec of a message, as the generated code has it. */
export interface Codec<T> {
	encode(message: T): { finish(): Uint8Array };
	decode(bytes: Uint8Array): T;
}

/** Bytes that a message may have, in both directions. */
export const maxMessage = 16 << 20;

/** In front of each message: a flag (1: compressed) and its length in 4 bytes. */
const prefix = 5;

/** Encodes a message with its prefix, as one buffer, so that it is one write. */
export function framed<T>(codec: Codec<T>, message: T): Buffer {
	const bytes = codec.encode(message).finish();
	const out = Buffer.allocUnsafe(prefix + bytes.length);
	out[0] = 0;
	out.writeUInt32BE(bytes.length, 1);
	out.set(bytes, prefix);
	return out;
}

/** Cuts what arrives into messages. Chunks may end anywhere. */
export class Messages {
	/** The beginning of a message whose end has not come; at least one prefix, unless it is shorter than that. */
	#parts: Buffer[] = [];
	#have = 0;
	/** Bytes at which the message in parts is whole; a prefix while its length is not known. */
	#want = prefix;

	constructor(readonly take: (message: Buffer) => void) {}

	/** A message has begun, and its end has not come. */
	get within(): boolean {
		return this.#have > 0;
	}

	/** Takes a chunk, and returns what is wrong with it; undefined: nothing. */
	push(chunk: Buffer): string | undefined {
		let rest = chunk;
		if (this.#have > 0) {
			this.#parts.push(chunk);
			this.#have += chunk.length;
			if (this.#have < this.#want) return undefined;
			rest = Buffer.concat(this.#parts, this.#have);
			this.#parts = [];
			this.#have = 0;
		}
		let at = 0;
		this.#want = prefix;
		while (rest.length - at >= prefix) {
			if (rest[at] !== 0) return "a message is compressed, which was not agreed on";
			const length = rest.readUInt32BE(at + 1);
			if (length > maxMessage) return `a message of ${length} bytes is longer than ${maxMessage}`;
			this.#want = prefix + length;
			if (rest.length - at < this.#want) break;
			this.take(rest.subarray(at + prefix, at + this.#want));
			at += this.#want;
			this.#want = prefix;
		}
		if (at < rest.length) {
			this.#parts.push(at === 0 ? rest : rest.subarray(at));
			this.#have = rest.length - at;
		}
		return undefined;
	}
}

/** Milliseconds as the header grpc-timeout has them: at most 8 digits and a unit. */
export function timeoutText(ms: number): string {
	const whole = Math.max(Math.ceil(ms), 1);
	return whole < 1e8 ? `${whole}m` : `${Math.min(Math.ceil(whole / 1000), 99_999_999)}S`;
}

const status = { ok: 0, cancelled: 1, unknown: 2, deadlineExceeded: 4, unimplemented: 12, internal: 13 };

/** Codes of gRPC in words of the contract. What is not listed is UNAVAILABLE. refused: the code alone says that nothing was changed. */
const codes: Partial<Record<number, { code: Code; refused?: boolean }>> = {
	3: { code: "INVALID_ARGUMENT", refused: true },
	12: { code: "INVALID_ARGUMENT", refused: true },
	11: { code: "INVALID_ARGUMENT", refused: true },
	16: { code: "UNAUTHENTICATED", refused: true },
	7: { code: "PERMISSION_DENIED", refused: true },
	5: { code: "NOT_FOUND", refused: true },
	6: { code: "ALREADY_EXISTS", refused: true },
	9: { code: "PRECONDITION_FAILED", refused: true },
	8: { code: "RESOURCE_EXHAUSTED" },
	4: { code: "DEADLINE_EXCEEDED" },
	1: { code: "DEADLINE_EXCEEDED" },
	13: { code: "INTERNAL" },
	15: { code: "DATA_LOSS" },
};

/** Reads the error of the contract in the details of a status; undefined: there is none, or it cannot be read. */
function detailOf(text: string): WireError | undefined {
	// Base64 with padding or without; several values have commas between them, of which the first one counts.
	const r = new BinaryReader(Buffer.from(text.split(",", 1)[0]!, "base64"));
	try {
		while (r.pos < r.len) {
			const tag = r.uint32();
			if (tag >>> 3 !== 3) {
				r.skip(tag & 7);
				continue;
			}
			const end = r.uint32() + r.pos;
			let type = "";
			let value: Uint8Array = Buffer.alloc(0);
			while (r.pos < end) {
				const t = r.uint32();
				if (t >>> 3 === 1) type = r.string();
				else if (t >>> 3 === 2) value = r.bytes();
				else r.skip(t & 7);
			}
			if (type.endsWith("/millrace.v1.Error")) return WireError.decode(value);
		}
	} catch {
		// The code and the message are there without it.
	}
	return undefined;
}

/** Undoes percent encoding; what is encoded wrongly stays as it is. */
function plain(text: string): string {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

function faultOfCode(code: number, message: string): Fault {
	const known = codes[code];
	return {
		code: known?.code ?? "UNAVAILABLE",
		message: message || "the server is not reached",
		outcome: known?.refused ? "refused" : "unknown",
	};
}

const one = (value: string | string[] | undefined): string => (Array.isArray(value) ? value[0]! : (value ?? ""));

/**
 * Makes a fault of the headers that have grpc-status; undefined: the call went well. Without an error of the contract nothing says whether
 * a server has seen the call, unless the code does.
 */
export function faultOfStatus(headers: IncomingHttpHeaders): Fault | undefined {
	const text = one(headers["grpc-status"]);
	const code = /^\d{1,3}$/.test(text) ? Number(text) : status.unknown;
	if (code === status.ok) return undefined;
	const detail = headers["grpc-status-details-bin"];
	const told = detail === undefined ? undefined : detailOf(one(detail));
	if (told) return { ...faultOf(told), told: true };
	const f = faultOfCode(code, plain(one(headers["grpc-message"])));
	if (code === status.unimplemented) f.foreign = true;
	return f;
}

/** Statuses of HTTP in codes of gRPC, for answers that something between made; what is not listed is unknown. */
const ofHttp: Partial<Record<number, number>> = {
	400: 13,
	401: 16,
	403: 7,
	404: 12,
	429: 14,
	502: 14,
	503: 14,
	504: 14,
};

/** Makes a fault of the headers of an answer that is not gRPC's; undefined: it is. */
export function faultOfHttp(headers: IncomingHttpHeaders): Fault | undefined {
	const type = headers["content-type"] ?? "";
	const http = Number(headers[":status"]);
	const spoken = /^application\/grpc($|[+;])/.test(type);
	if (spoken && (http === 200 || headers["grpc-status"] !== undefined)) return undefined;
	const f = faultOfCode(
		ofHttp[http] ?? status.unknown,
		`the answer is not gRPC's: HTTP status ${http}, content-type ${JSON.stringify(type)}`,
	);
	f.foreign = true;
	return f;
}
