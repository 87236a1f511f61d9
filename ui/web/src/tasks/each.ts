import { ApiError, asApiError } from "../api/errors";

/** Most tasks that are acted on one by one; more of them are a job of the server. */
export const mostEach = 100;

interface Outcome {
	done: number;
	refused: Map<string, number>;
	/** It may have been applied to these. */
	unknown: string[];
}

/** each does something to tasks one by one, a few at once, and counts what became of it. */
export async function each(
	ids: readonly string[],
	run: (id: string) => Promise<unknown>,
	atOnce = 4,
): Promise<Outcome> {
	const out: Outcome = { done: 0, refused: new Map(), unknown: [] };
	const left = [...ids];
	const go = async () => {
		for (let id = left.shift(); id !== undefined; id = left.shift()) {
			try {
				await run(id);
				out.done++;
			} catch (thrown) {
				const e = thrown instanceof ApiError ? thrown : asApiError(thrown);
				if (e.outcome === "refused") out.refused.set(e.code, (out.refused.get(e.code) ?? 0) + 1);
				else out.unknown.push(id);
			}
		}
	};
	await Promise.all(Array.from({ length: atOnce }, go));
	return out;
}

/** told says an outcome: "38 retried, 2 refused (WRONG_STATE)". */
export function told(o: Outcome, verb: string): string {
	const refused = [...o.refused].map(([code, n]) => `${n} refused (${code})`);
	const parts = [`${o.done} ${verb}`, ...refused];
	if (o.unknown.length > 0) parts.push(`${o.unknown.length} may have been`);
	return parts.join(", ");
}
