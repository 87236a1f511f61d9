import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from "react";
import { dropReads, onSignedOut, type Schemas, send, sessionHeader, setCsrf } from "./api/client";
import { type ApiError, asApiError } from "./api/errors";
import { endLive } from "./live/live";

/** Session is who is signed in, and where. */
type Session = Schemas["Session"];

interface State {
	session: Session | undefined;
	/** Why there is no session, other than that a sign-in is due. */
	error: ApiError | undefined;
	busy: boolean;
	signIn(with_: { token: string } | { code: string }): Promise<void>;
	signOut(): Promise<void>;
	retry(): void;
}

const Context = createContext<State | undefined>(undefined);

/** ask calls /v1/session. */
async function ask(
	method: "GET" | "POST" | "DELETE",
	header: Record<string, string>,
	body?: unknown,
): Promise<Session | undefined> {
	const response = await send("/v1/session", {
		method,
		headers: body === undefined ? header : { ...header, "Content-Type": "application/json" },
		...(body === undefined ? {} : { body: JSON.stringify(body) }),
	});
	return (await response.json().catch(() => undefined)) as Session | undefined;
}

/** takeCode returns the code of a link that signs in once, and removes it from the address and from the history at once. */
function takeCode(): string | undefined {
	const m = /^#code=([\w-]+)$/.exec(location.hash);
	if (location.hash) history.replaceState(history.state, "", location.pathname + location.search);
	return m?.[1];
}

export function SessionProvider({ children }: { children: ReactNode }) {
	const [session, setSession] = useState<Session>();
	const [error, setError] = useState<ApiError>();
	const [busy, setBusy] = useState(true);
	const [tries, setTries] = useState(0);

	const queries = useQueryClient();
	const enter = useCallback((s: Session | undefined) => {
		setCsrf(s?.csrf ?? "");
		setSession(s);
		setError(undefined);
	}, []);
	/** leave forgets the session and all that was read with it: the next person may see less. */
	const leave = useCallback(() => {
		endLive();
		dropReads();
		queries.clear();
		enter(undefined);
	}, [enter, queries]);
	useEffect(() => {
		const code = takeCode();
		let gone = false;
		setBusy(true);
		const first = code ? ask("POST", {}, { code }) : ask("GET", { "Millrace-Session": "hello" });
		first
			// A person who is signed in already and opens an old link stays signed in.
			.catch((e: ApiError) =>
				code && (e.status === 401 || e.field === "code")
					? ask("GET", { "Millrace-Session": "hello" }).catch(() => Promise.reject(e))
					: Promise.reject(e),
			)
			.then((s) => !gone && enter(s))
			.catch((e: ApiError) => {
				if (gone) return;
				setSession(undefined);
				setError(code || e.status !== 401 ? e : undefined);
			})
			.finally(() => !gone && setBusy(false));
		return () => {
			gone = true;
		};
	}, [tries, enter]);

	// A link that is opened in a tab which shows this page already changes nothing but the address.
	useEffect(() => {
		const look = () => {
			if (location.hash.startsWith("#code=")) setTries((n) => n + 1);
		};
		addEventListener("hashchange", look);
		return () => removeEventListener("hashchange", look);
	}, []);

	useEffect(() => {
		onSignedOut(leave);
	}, [leave]);

	const value = useMemo<State>(
		() => ({
			session,
			error,
			busy,
			async signIn(with_) {
				setBusy(true);
				try {
					enter(await ask("POST", {}, with_));
				} catch (e) {
					setError(asApiError(e));
				} finally {
					setBusy(false);
				}
			},
			async signOut() {
				const header = sessionHeader();
				setBusy(true);
				leave();
				// A session that has ended already is as good as one that this ends.
				await ask("DELETE", header).catch((e: ApiError) => e.status !== 401 && setError(e));
				setBusy(false);
			},
			retry: () => setTries((n) => n + 1),
		}),
		[session, error, busy, enter, leave],
	);
	return <Context value={value}>{children}</Context>;
}

export function useSessionState(): State {
	const state = useContext(Context);
	if (!state) throw new Error("useSessionState must be used inside SessionProvider");
	return state;
}

/** useSession is the session of a page behind the sign-in. */
export function useSession(): Session {
	const { session } = useSessionState();
	if (!session) throw new Error("useSession must be used on a page behind the sign-in");
	return session;
}

/** scopeWords writes a list of scopes, of which one is needed. */
export const scopeWords = (scopes: string): string => scopes.replaceAll("|", " or ");

/** useMay tells whether the session has one of the scopes of a list, such as "task:operate|admin". Buttons are a comfort: the server decides. */
export function useMay(): (scopes: string | undefined) => boolean {
	const { scopes } = useSession();
	return useCallback((want) => !want || want.split("|").some((s) => scopes.includes(s)), [scopes]);
}
