import { useEffect, useMemo, useRef } from "react";
import { askedAt } from "../api/asked";
import type { Topic } from "./frames";
import { type Status, useLiveStatus, useTopic } from "./live";
import { Pacer } from "./pacer";
import { overlaid } from "./rows";

/** How often what no topic tells is read again. */
export const pollEvery = 5000;

/**
 * useFollow reads something again after what is known of it has changed, but no more often than each `atMost` milliseconds: for what a topic
 * says that it moved, and not what it is now. `moved` is of what was read, and then of what is told.
 */
export function useFollow(moved: string | undefined, read: () => unknown, atMost: number): void {
	const latest = useRef(read);
	latest.current = read;
	const pacer = useMemo(() => new Pacer(() => void latest.current()), []);
	useEffect(() => () => pacer.stop(), [pacer]);
	const last = useRef(moved);
	useEffect(() => {
		if (last.current !== undefined && moved !== undefined && moved !== last.current) pacer.ask(atMost);
		last.current = moved;
	}, [moved, pacer, atMost]);
}

/** usePoll reads something again each `every` milliseconds while the page is seen; false: never. */
export function usePoll(every: number | false, read: () => unknown): void {
	const latest = useRef(read);
	latest.current = read;
	useEffect(() => {
		if (every === false) return undefined;
		const t = setInterval(() => !document.hidden && latest.current(), every);
		return () => clearInterval(t);
	}, [every]);
}

interface List<T> {
	id: (row: T) => string;
	/** How many rows the topic tells of at most. */
	most: number;
	/** The list is a part of what the topic tells of, such as what begins with a prefix. */
	part: boolean;
	/** So much was read that it is read again when it is asked for alone. */
	long?: boolean;
	/** What a row is, of what was read and what is told. */
	join?: (read: T, told: T) => T;
}

/**
 * useLiveList is a list that was read, with its rows as a topic tells them by now. What the topic does not tell of, and all of it where
 * the stream fails, is read again each 5 s.
 */
export function useLiveList<T>(
	ns: string,
	name: string,
	query: { dataUpdatedAt: number; refetch: () => unknown },
	read: T[] | undefined,
	{ id, most, part, long = false, join }: List<T>,
): T[] | undefined {
	const status = useLiveStatus(ns);
	const topic = useTopic(ns, name);
	const told = topic?.rows as unknown as ReadonlyMap<string, T> | undefined;
	const all = !!told && told.size < most;
	const now = isNewer(topic, status, query) ? told : undefined;
	const rows = useMemo(
		() => (read && now ? overlaid(read, now, { id, whole: all && !part, ...(join ? { join } : {}) }) : read),
		[read, now, all, part, id, join],
	);
	const covered = !!told && status !== "failing" && (all || !!read?.every((row) => told.has(id(row))));
	usePoll(status === "paused" || covered || long ? false : pollEvery, query.refetch);
	return rows;
}

/**
 * isNewer tells whether a topic was told of after something was asked for. What is told while the answer is on its way may be the newer
 * of both; where it is not, the stream goes on to tell what the answer said, and not the other way round.
 */
function isNewer(topic: Topic | undefined, status: Status, query: { dataUpdatedAt: number }): boolean {
	return !!topic && status !== "failing" && topic.came >= askedAt(query.dataUpdatedAt);
}

/** useTold is a row of a topic, where it was told after it was read. Without an id it is the one row of its topic. */
export function useTold<T>(
	ns: string,
	name: string | undefined,
	id: string | undefined,
	query: { dataUpdatedAt: number },
): { row: T | undefined; newer: boolean } {
	const status = useLiveStatus(ns);
	const topic = useTopic(ns, name);
	const row = id === undefined ? topic?.rows.values().next().value : topic?.rows.get(id);
	return { row: row as T | undefined, newer: !!row && isNewer(topic, status, query) };
}

/** useToldOne is one thing of a topic of many, where it was told after it was read. What is not told of is read each 5 s. */
export function useToldOne<T>(
	ns: string,
	name: string,
	id: string,
	query: { dataUpdatedAt: number; refetch: () => unknown },
): T | undefined {
	const status = useLiveStatus(ns);
	const { row, newer } = useTold<T>(ns, name, id, query);
	usePoll(status === "paused" || (row && status !== "failing") ? false : pollEvery, query.refetch);
	return newer ? row : undefined;
}
