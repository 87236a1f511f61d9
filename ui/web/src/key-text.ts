// A key is any bytes. It is shown, typed and put into addresses as text in which "\xNN" is a byte that cannot be read and "\\" a backslash,
// or in hex. Both ways lead back to the same bytes.

export type KeyView = "text" | "hex";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Characters that a page would swallow, or that change the direction or the look of what stands beside them. */
const hidden = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;

const escaped = (b: number) => `\\x${b.toString(16).padStart(2, "0")}`;

/** length tells how many bytes the character that begins with b has. */
function length(b: number): number {
	return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/** showKey writes a key. */
export function showKey(key: Uint8Array, view: KeyView = "text"): string {
	if (view === "hex") return Array.from(key, (b) => b.toString(16).padStart(2, "0")).join("");
	let out = "";
	for (let i = 0; i < key.length; ) {
		const part = key.subarray(i, i + length(key[i]!));
		let c: string | undefined;
		try {
			c = utf8.decode(part);
		} catch {
			c = undefined;
		}
		if (c === "\\") out += "\\\\";
		else if (c !== undefined && !hidden.test(c)) out += c;
		else if (c !== undefined) for (const b of part) out += escaped(b);
		else {
			out += escaped(key[i]!);
			i++;
			continue;
		}
		i += part.length;
	}
	return out;
}

/** readKey reads what was typed; undefined where it is not a key. */
export function readKey(text: string, view: KeyView = "text"): Uint8Array<ArrayBuffer> | undefined {
	if (view === "hex") {
		const digits = text.replaceAll(/\s/g, "");
		if (!/^([0-9a-f]{2})*$/i.test(digits)) return undefined;
		return Uint8Array.from(digits.match(/../g) ?? [], (d) => Number.parseInt(d, 16));
	}
	const out: number[] = [];
	const encoder = new TextEncoder();
	for (const part of text.split(/(\\x[0-9a-f]{2}|\\\\)/i)) {
		if (part === "\\\\") out.push(0x5c);
		else if (/^\\x[0-9a-f]{2}$/i.test(part)) out.push(Number.parseInt(part.slice(2), 16));
		else out.push(...encoder.encode(part));
	}
	return Uint8Array.from(out);
}

/** inAddress writes bytes so that they stand in a path or in a query. */
export function inAddress(bytes: Uint8Array): string {
	let out = "";
	for (const b of bytes)
		out += /[\w-]/.test(String.fromCharCode(b))
			? String.fromCharCode(b)
			: `%${b.toString(16).toUpperCase().padStart(2, "0")}`;
	return out;
}

/** fromBase64 reads bytes of an answer. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
	return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** toBase64 writes bytes for a request. */
export function toBase64(bytes: Uint8Array): string {
	let out = "";
	for (let i = 0; i < bytes.length; i += 8192) out += String.fromCharCode(...bytes.subarray(i, i + 8192));
	return btoa(out);
}

/** bytesOf reads a field that an answer gives as text, or in base64 where it is not UTF-8. */
export function bytesOf(text: string | undefined, base64: string | undefined): Uint8Array<ArrayBuffer> {
	if (base64 !== undefined) return fromBase64(base64);
	return new TextEncoder().encode(text ?? "");
}

/** parent is the prefix above a prefix that ends with the delimiter: "a/b/" is below "a/". */
export function parent(prefix: Uint8Array, delimiter = 0x2f): Uint8Array {
	const end = prefix.at(-1) === delimiter ? prefix.length - 1 : prefix.length;
	return prefix.subarray(0, prefix.subarray(0, end).lastIndexOf(delimiter) + 1);
}
