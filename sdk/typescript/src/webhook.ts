// A check of webhooks, for those who receive them, by the scheme of Standard Webhooks. It uses nothing of Node.

const ID = "webhook-id";
const TIMESTAMP = "webhook-timestamp"; // unix seconds
const SIGNATURE = "webhook-signature"; // signatures with spaces between, each a version, a comma and base64

/**
 * Why a webhook was refused. HEADER_MISSING: `field` is a header that is absent or empty. HEADER_INVALID: `field` is a timestamp that is
 * not a number, or an id with a full stop. TOO_OLD and TOO_NEW: the timestamp is further from the clock than `max` seconds. NO_MATCH: no
 * signature was made with one of the secrets. SECRET_INVALID: `field` is a secret that cannot be used, so that the receiver is at fault.
 */
export type WebhookCode = "HEADER_MISSING" | "HEADER_INVALID" | "TOO_OLD" | "TOO_NEW" | "NO_MATCH" | "SECRET_INVALID";

/** Why a webhook was refused. Its message has no part of a secret. */
export class WebhookError extends Error {
	readonly code: WebhookCode;
	/** Name of the header, or the place of the secret, such as secrets[1]. */
	readonly field: string | undefined;
	/** tolerance, of TOO_OLD and TOO_NEW, and its value in seconds. */
	readonly limit: string | undefined;
	readonly max: number | undefined;

	constructor(code: WebhookCode, message: string, more: { field?: string; limit?: string; max?: number } = {}) {
		super(`${code}: ${message}`);
		this.name = "WebhookError";
		this.code = code;
		this.field = more.field;
		this.limit = more.limit;
		this.max = more.max;
	}
}

/** Headers of a request: those of fetch, or an object as Node has it. Names may be in any letters. */
export type WebhookHeaders =
	| { get(name: string): string | null }
	| { readonly [name: string]: string | readonly string[] | undefined };

export interface VerifyOptions {
	/** Seconds that the timestamp may be from the clock, before or after. Default: 300. */
	tolerance?: number;
	/** The clock, in milliseconds. Default: Date.now. */
	now?: () => number;
}

/**
 * Checks that a webhook was sent by one who knows a secret, and was sent now; else it throws a WebhookError.
 *
 * The body is what came, before it is parsed. Secrets are base64 of a key, with or without the prefix whsec_; one that matches is enough,
 * so that a sender may change from one to the next. Signatures of other versions than v1 are passed over. A webhook that is sent a second
 * time passes again: a receiver that must not act twice remembers the header webhook-id.
 */
export async function verifyWebhook(
	headers: WebhookHeaders,
	body: string | Uint8Array | ArrayBuffer,
	secrets: string | readonly string[],
	options: VerifyOptions = {},
): Promise<void> {
	const keys = keysOf(typeof secrets === "string" ? [secrets] : secrets);
	const [id, timestamp, signatures] = [ID, TIMESTAMP, SIGNATURE].map((name) => header(headers, name)) as [
		string,
		string,
		string,
	];
	// A full stop would blur where the id ends in what is signed.
	if (id.includes(".")) throw new WebhookError("HEADER_INVALID", `${ID}: must not have a full stop`, { field: ID });
	checkTime(timestamp, options.tolerance ?? 300, Math.floor((options.now ?? Date.now)() / 1000));
	const utf8 = new TextEncoder();
	const head = utf8.encode(`${id}.${timestamp}.`);
	const data = typeof body === "string" ? utf8.encode(body) : new Uint8Array(body);
	const signed = new Uint8Array(head.length + data.length);
	signed.set(head);
	signed.set(data, head.length);
	const given = signatures.split(" ");
	for (const raw of keys) {
		const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
		const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
		const want = `v1,${btoa(String.fromCharCode(...mac))}`;
		if (given.some((s) => same(s, want))) return;
	}
	throw new WebhookError("NO_MATCH", "no signature was made with one of the secrets");
}

/** Returns a header, which must be there. */
function header(headers: WebhookHeaders, name: string): string {
	let value: string | readonly string[] | null | undefined;
	if (typeof headers.get === "function") value = headers.get(name);
	else value = Object.entries(headers).find(([n]) => n.toLowerCase() === name)?.[1];
	if (typeof value === "object") value = value?.[0];
	if (!value) throw new WebhookError("HEADER_MISSING", `${name}: the header is missing`, { field: name });
	return value;
}

function checkTime(text: string, tolerance: number, now: number): void {
	const at = /^(0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Number.NaN;
	if (!Number.isSafeInteger(at)) {
		throw new WebhookError("HEADER_INVALID", `${TIMESTAMP}: must be unix seconds`, { field: TIMESTAMP });
	}
	const over = Math.abs(now - at) - tolerance;
	if (over <= 0) return;
	const [code, word] = at < now ? (["TOO_OLD", "old"] as const) : (["TOO_NEW", "new"] as const);
	const more = { field: TIMESTAMP, limit: "tolerance", max: tolerance };
	throw new WebhookError(code, `${TIMESTAMP}: ${over} s too ${word}`, more);
}

function keysOf(secrets: readonly string[]): Uint8Array<ArrayBuffer>[] {
	if (secrets.length === 0) {
		throw new WebhookError("SECRET_INVALID", "secrets: at least one is required", { field: "secrets" });
	}
	return secrets.map((secret, i) => {
		const text = secret.replace(/^whsec_/, "");
		if (!text || !/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) {
			const field = `secrets[${i}]`;
			throw new WebhookError("SECRET_INVALID", `${field}: must be base64 of a key, perhaps after whsec_`, { field });
		}
		return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
	});
}

/** Compares in a time that depends on the length of what was given alone. */
function same(given: string, want: string): boolean {
	let differ = given.length ^ want.length;
	for (let i = 0; i < given.length; i++) differ |= given.charCodeAt(i) ^ want.charCodeAt(i % want.length);
	return differ === 0;
}
