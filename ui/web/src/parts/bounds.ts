import type { Schemas } from "../api/client";
import { count, parseSpan } from "../format";
import { spanText } from "./queue-config";

type Rate = Schemas["Rate"];

/** Bounds are what keys and limiters may have: how much runs at once, and how much begins in a time. */
export interface Bounds {
	concurrency?: number;
	rate?: Rate;
}

/** BoundsForm is bounds as they are typed. */
export interface BoundsForm {
	concurrency: string;
	limit: string;
	per: string;
	burst: string;
}

/** rateText writes a rate: "600 per 1m, burst 50". */
export function rateText(r: Rate | undefined): string | undefined {
	if (!r) return undefined;
	const per = parseSpan(r.per);
	return `${count(r.limit)} per ${per === undefined ? r.per : spanText(per)}${r.burst ? `, burst ${count(r.burst)}` : ""}`;
}

export const text = (n: number | undefined): string => (n ? String(n) : "");

export const number = (s: string): number | undefined => (s.trim() === "" ? undefined : Number(s));

export function boundsFormOf(b: Bounds | undefined): BoundsForm {
	const per = parseSpan(b?.rate?.per);
	return {
		concurrency: text(b?.concurrency),
		limit: text(b?.rate?.limit),
		per: per === undefined ? (b?.rate?.per ?? "") : spanText(per),
		burst: text(b?.rate?.burst),
	};
}

/** boundsOf is what a form asks for. */
export function boundsOf(f: BoundsForm): Bounds {
	const [concurrency, limit, burst] = [f.concurrency, f.limit, f.burst].map(number);
	return {
		...(concurrency ? { concurrency } : {}),
		...(limit || f.per.trim() !== ""
			? { rate: { limit: limit ?? 0, per: f.per.trim(), ...(burst ? { burst } : {}) } }
			: {}),
	};
}

/** wholeWrong says what is wrong with a text that should be a whole number. */
export const wholeWrong = (s: string): string | undefined =>
	s.trim() !== "" && !/^\d{1,10}$/.test(s.trim()) ? "must be a whole number" : undefined;

/** boundsWrong says what is wrong with a form, before the server is asked. */
export function boundsWrong(f: BoundsForm): Partial<Record<keyof BoundsForm, string>> {
	const out: Partial<Record<keyof BoundsForm, string>> = {};
	for (const k of ["concurrency", "limit", "burst"] as const) {
		const wrong = wholeWrong(f[k]);
		if (wrong) out[k] = wrong;
	}
	if (f.per.trim() !== "" && parseSpan(f.per.trim()) === undefined) out.per = "must be a duration such as 1m";
	else if (f.limit.trim() !== "" && f.per.trim() === "") out.per = "is required with a rate";
	if (f.limit.trim() === "" && (f.per.trim() !== "" || f.burst.trim() !== "")) out.limit = "is required with a rate";
	return out;
}
