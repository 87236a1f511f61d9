import type { Schemas } from "../api/client";
import { count, parseTime } from "../format";
import { type BoundsForm, boundsFormOf, boundsOf, boundsWrong, number, text, wholeWrong } from "./bounds";

export type QueueKey = Schemas["QueueKey"];
export type KeySettings = Schemas["KeySettings"];

export const keySorts = ["backlog", "oldest", "owed", "name"] as const;
export type KeySort = (typeof keySorts)[number];

/** Lane is a line of a queue: that of a key, or that of the tasks without one. */
export interface Lane extends QueueKey {
	unkeyed?: boolean;
	/** How many lines of the same key come before it: each partition that the key is in has one. */
	nth?: number;
}

/** laneId tells lines apart. */
export const laneId = (l: Lane): string => (l.unkeyed ? "" : `${l.nth ?? 0}=${l.key}`);

/** before orders two lines as the server does. */
function before(a: QueueKey, b: QueueKey, sort: KeySort): boolean {
	switch (sort) {
		case "backlog":
			return (a.ready ?? 0) > (b.ready ?? 0);
		case "oldest":
			return (
				(parseTime(a.oldest_ready) ?? Number.POSITIVE_INFINITY) <
				(parseTime(b.oldest_ready) ?? Number.POSITIVE_INFINITY)
			);
		case "owed":
			return (a.owed ?? 0) > (b.owed ?? 0);
		default:
			return true;
	}
}

/** lanesOf puts the line of tasks without a key, where it has any, in its place among those of keys. */
export function lanesOf(answer: Schemas["ListKeysResponse"], sort: KeySort): Lane[] {
	const seen = new Map<string, number>();
	const keys: Lane[] = (answer.keys ?? []).map((k) => {
		const nth = seen.get(k.key ?? "") ?? 0;
		seen.set(k.key ?? "", nth + 1);
		return nth > 0 ? { ...k, nth } : k;
	});
	const plain = answer.unkeyed;
	if (!plain?.tasks) return keys;
	const at = keys.findIndex((k) => before(plain, k, sort));
	return keys.toSpliced(at < 0 ? keys.length : at, 0, { ...plain, unkeyed: true });
}

/** part writes a part of a whole: "33 %". A small one is not nothing. */
export function part(x: number | undefined): string {
	if (x === undefined) return "–";
	if (x > 0 && x < 0.01) return "< 1 %";
	return `${Math.round(x * 100)} %`;
}

/** owedText says by how much a line is behind its share, or ahead of it. */
export function owedText(owed: number | undefined): string {
	if (!owed) return "even";
	return owed > 0 ? `${count(owed)} behind` : `${count(-owed)} ahead`;
}

/** KeyForm is what is set for a key, as it is typed. */
export interface KeyForm extends BoundsForm {
	weight: string;
}

export function keyFormOf(s: KeySettings | undefined): KeyForm {
	return { weight: text(s?.weight), ...boundsFormOf(s) };
}

/** keySettingsOf is what a form asks for. */
export function keySettingsOf(f: KeyForm): KeySettings {
	const weight = number(f.weight);
	return { ...(weight ? { weight } : {}), ...boundsOf(f) };
}

/** keyWrong says what is wrong with a form, before the server is asked. */
export function keyWrong(f: KeyForm): Partial<Record<keyof KeyForm, string>> {
	const weight = wholeWrong(f.weight) ?? (Number(f.weight) > 1000 ? "must be from 1 to 1,000" : undefined);
	return { ...(weight ? { weight } : {}), ...boundsWrong(f) };
}

/** addressable tells whether a key can stand in an address: a path leaves out one that is "." or "..". */
export const addressable = (key: string): boolean => key !== "" && key !== "." && key !== "..";
