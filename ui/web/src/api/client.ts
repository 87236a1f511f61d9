import createClient, { type Middleware } from "openapi-fetch";
import { learnServerTime } from "../now";
import { ApiError, asApiError, errorOf } from "./errors";
import type { components, paths } from "./schema";
import { ask } from "./stale";

export type Schemas = components["schemas"];

/** What every request carries, set once the session is known. It is kept in memory only. */
const state = {
	csrf: "",
	ns: "default",
	index: new Map<string, string>(),
	onSignedOut: () => {},
	reads: new AbortController(),
};

export function setCsrf(csrf: string): void {
	state.csrf = csrf;
}

export function setNamespace(ns: string): void {
	state.ns = ns;
}

export function onSignedOut(f: () => void): void {
	state.onSignedOut = f;
}

/** dropReads gives up the reads that wait for an answer. What was written goes on. */
export function dropReads(): void {
	state.reads.abort();
	state.reads = new AbortController();
}

/** sessionHeader is the header without which the session's cookie does not count. */
export function sessionHeader(): Record<string, string> {
	return { "Millrace-Session": state.csrf };
}

/** withPlace adds the namespace to a path, and lets the node forward what another must serve: a page cannot follow a redirect to it. */
export function withPlace(path: string, ns = state.ns): string {
	const url = new URL(path, location.origin);
	// Written by hand: URLSearchParams would write the query again, and lose bytes that are not UTF-8.
	const named = url.searchParams.has("ns") ? "" : `&ns=${encodeURIComponent(ns)}`;
	return `${url.pathname}${url.search || "?"}${named}&forward=1`.replace("?&", "?");
}

/** noteTime learns the server's clock from an answer. What a frame or a row says is when it was read, which may be long ago. */
function noteTime(response: Response): void {
	const at = Date.parse(response.headers.get("Date") ?? "");
	if (!Number.isNaN(at)) learnServerTime(at);
}

const place: Middleware = {
	async onRequest({ request }) {
		const url = new URL(withPlace(request.url), location.origin);
		// The body is read here: handed on as it is, it would be a stream, which browsers send over HTTP/2 alone.
		const body = await request.arrayBuffer();
		const made = new Request(url, {
			method: request.method,
			headers: request.headers,
			credentials: request.credentials,
			cache: request.cache,
			signal: request.method === "GET" ? AbortSignal.any([request.signal, state.reads.signal]) : request.signal,
			...(body.byteLength > 0 ? { body } : {}),
		});
		made.headers.set("Millrace-Session", state.csrf);
		return made;
	},
	onResponse({ response }) {
		noteTime(response);
		if (response.status === 401) state.onSignedOut();
	},
};

/** api calls the routes of the contract, typed. Pass what it returns to `call`. */
export const api = createClient<paths>({
	baseUrl: globalThis.location?.origin ?? "",
	credentials: "same-origin",
	cache: "no-store",
	fetch: ask,
});
api.use(place);

interface Answer<T> {
	data?: T;
	error?: unknown;
	response: Response;
}

/** call waits for an answer and returns its body, or throws an ApiError. */
export async function call<T>(answer: Promise<Answer<T>>): Promise<T> {
	let a: Answer<T>;
	try {
		a = await answer;
	} catch (e) {
		throw asApiError(e);
	}
	if (a.error !== undefined || !a.response.ok) throw errorOf(a.response.status, a.error);
	return a.data as T;
}

/** gone waits for a removal. That the thing is not there is what it asks for, and what a removal finds that is asked for once more. */
export async function gone<T>(removal: Promise<Answer<T>>): Promise<T | undefined> {
	try {
		return await call(removal);
	} catch (e) {
		if (e instanceof ApiError && e.code === "NOT_FOUND" && !e.noRoute) return undefined;
		throw e;
	}
}

/** Raw is the head of a payload, a result or a value, as its bytes. */
export interface Raw {
	bytes: Uint8Array<ArrayBuffer>;
	/** Bytes in all; more than bytes.length where only the head was asked for. */
	size: number;
	type: string;
	headers: Headers;
}

/** send makes a request past the typed routes: for bytes, streams and the session itself. It returns a good answer, or throws an ApiError. */
export async function send(path: string, init: RequestInit): Promise<Response> {
	let response: Response;
	try {
		response = await ask(new Request(path, { credentials: "same-origin", cache: "no-store", ...init }));
	} catch (e) {
		throw asApiError(e);
	}
	noteTime(response);
	if (!response.ok) throw errorOf(response.status, await response.json().catch(() => undefined));
	return response;
}

/** raw reads bytes as they are stored. */
export async function raw(path: string): Promise<Raw> {
	const response = await send(withPlace(path), { headers: sessionHeader() }).catch((e: ApiError) => {
		if (e.status === 401) state.onSignedOut();
		throw e;
	});
	const bytes = new Uint8Array(await response.arrayBuffer());
	const size = Number(response.headers.get("Millrace-Size") ?? bytes.length);
	return { bytes, size, type: response.headers.get("Millrace-Type") ?? "", headers: response.headers };
}

/** newRequestId names a write, so that it may be asked for again. */
export function newRequestId(): string {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
