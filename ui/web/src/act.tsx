import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useRef, useState } from "react";
import { newRequestId } from "./api/client";
import { asApiError, sentence } from "./api/errors";
import { toast } from "./parts/toast";

interface Act<A, R> {
	/** What it does, for the sentence of its outcome: "Pause thumb". */
	name: (arg: A) => string;
	/** Sends the write under a request id; the same id asks again safely. */
	run: (arg: A, requestId: string) => Promise<R>;
	/** After it was applied: a sentence, and what may follow. undefined: what the eye sees is enough. */
	done?: (result: R, arg: A) => { text: string; action?: { name: string; run: () => void } } | undefined;
}

/**
 * useAct returns a function that does a write without a dialog, and tells its outcome: refused, applied, or unknown, which may be asked
 * again under the same id. While one is under way, a second click does nothing.
 */
export function useAct<A, R>(act: Act<A, R>): [(arg: A) => Promise<R | undefined>, boolean] {
	const queries = useQueryClient();
	const [busy, setBusy] = useState(false);
	const under = useRef(false);
	const latest = useRef(act);
	latest.current = act;
	const send = useCallback(
		async (arg: A, id: string): Promise<R | undefined> => {
			if (under.current) return undefined;
			under.current = true;
			setBusy(true);
			try {
				const result = await latest.current.run(arg, id);
				queries.invalidateQueries();
				const said = latest.current.done?.(result, arg);
				if (said) toast(said.text, said.action ? { action: said.action } : {});
				return result;
			} catch (thrown) {
				const e = asApiError(thrown);
				const name = latest.current.name(arg);
				if (e.outcome === "refused")
					toast(`${name}: nothing was changed. ${e.code}: ${sentence(e) || e.message}`, { bad: true });
				else
					toast(`${name}: it may have been applied. ${e.message}`, {
						bad: true,
						action: { name: "Ask again", run: () => void send(arg, id) },
					});
				queries.invalidateQueries();
				return undefined;
			} finally {
				under.current = false;
				setBusy(false);
			}
		},
		[queries],
	);
	return [useCallback((arg: A) => send(arg, newRequestId()), [send]), busy];
}
