import { errorOf } from "./errors";

/** Reads that a node answers from what it has, where no majority of nodes answers: those with the parameter consistency. */
const staleReads = new RegExp(
	`^/v1/(${[
		"namespace",
		"tenant",
		"errors",
		"tasks(/_(/(payload|output|attempts|effects|logs))?)?",
		"queues(/_(/(keys|stats))?)?",
		"(bulk|batches|limiters|keyspaces|rulesets)(/_)?",
		"tenants/_",
		"crons(/_(/runs)?)?",
		"collections(/_(/stats)?)?",
		"kv/_(/keys/_)?",
		"repos(/_(/(refs|reflog|activity)(/.*)?)?)?",
	]
		.join("|")
		.replaceAll("_", "[^/]+")})$`,
);

/** staleOf is the request for what this node has; undefined where the route has no such thing. */
export function staleOf(url: string): string | undefined {
	const at = new URL(url, location.origin);
	if (!staleReads.test(at.pathname) || /[?&]consistency=/.test(at.search)) return undefined;
	const fresh = at.search.replace(/&(min_index|max_stale)=[^&]*/g, "").replace(/\?(min_index|max_stale)=[^&]*&?/, "?");
	return `${at.origin}${at.pathname}${fresh || "?"}&consistency=stale`.replace("?&", "?");
}

/** isUnled tells whether an answer says that no node leads. */
async function isUnled(response: Response): Promise<boolean> {
	if (response.status !== 503) return false;
	return errorOf(
		503,
		await response
			.clone()
			.json()
			.catch(() => undefined),
	).unled;
}

/** How long a read may take, in ms, where it is known that nodes lead not all that is looked at: a node waits for a leader about 10 s. */
const patience = 500;

let unled = false;

/** Reads under way, which do not wait for a leader much longer once it is known that none leads. */
const waiting = new Set<() => void>();

/** tellUnled says whether no node leads some of what is looked at. The frame of the page tells so, and how old what it shows is. */
export function tellUnled(is: boolean): void {
	unled = is;
	if (is) for (const hurry of waiting) hurry();
}

/** ask is fetch. A read that no majority of nodes answers is answered with what this node has, where the route has such a thing. */
export async function ask(request: Request): Promise<Response> {
	const at = request.method === "GET" ? staleOf(request.url) : undefined;
	if (!at) return fetch(request);
	const late = new AbortController();
	let timer: ReturnType<typeof setTimeout> | undefined;
	const hurry = () => {
		timer ??= setTimeout(() => late.abort(), patience);
	};
	waiting.add(hurry);
	if (unled) hurry();
	try {
		const fresh = await fetch(request, { signal: AbortSignal.any([request.signal, late.signal]) });
		if (!(await isUnled(fresh))) return fresh;
	} catch (e) {
		if (!late.signal.aborted || request.signal.aborted) throw e;
	} finally {
		clearTimeout(timer);
		waiting.delete(hurry);
	}
	return fetch(new Request(at, request));
}
