import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useAddress } from "../address";
import { api, call } from "../api/client";
import { usePausing } from "../crons/acts";
import { type Clocks, type Cron, clocks, isOpen, lastRuns, ranOf } from "../crons/cron";
import { NewCron } from "../crons/form";
import { columnsBy, cronId } from "../crons/table";
import { curl } from "../curl";
import { pollEvery, useFollow, useLiveList, usePoll } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Loading, Page, ReadFailed, Segments } from "../parts/basic";
import { Grid } from "../parts/grid";
import { useHeldRows } from "../parts/held-rows";
import { ListHead, usePrefix } from "../parts/list-head";

const names: Record<Clocks, string> = { zone: "each cron's zone", utc: "UTC" };

/** useClocks is by which clocks slots are shown: the address says it. */
export function useClocks(): [Clocks, (c: Clocks) => void] {
	const address = useAddress();
	const { view } = useSearch({ strict: false });
	return [clocks.find((c) => c === view) ?? "zone", (c) => address({ view: c === "zone" ? undefined : c })];
}

/** A topic tells of this many crons, the first ones by name. */
const told = 100;
/** What it tells of a cron lacks its strip of runs, and the payload of what it makes. */
const join = (read: Cron, now: Cron): Cron => ({
	...now,
	template: read.template,
	...(read.recent ? { recent: read.recent } : {}),
});

/** Crons lists what makes tasks by a schedule: when each is due next, and how its last runs went. */
export function Crons() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const prefix = usePrefix();
	const [by, setBy] = useClocks();
	const [making, setMaking] = useState(false);
	const status = useLiveStatus(ns);
	const [pause] = usePausing();
	const query = useInfiniteQuery({
		queryKey: [ns, "crons", prefix],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/crons", {
					params: {
						query: {
							limit: 100,
							runs: lastRuns,
							...(prefix ? { prefix } : {}),
							...(pageParam ? { cursor: pageParam } : {}),
						},
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
		placeholderData: (before) => before,
	});
	const read = useMemo(() => query.data?.pages.flatMap((p) => p.crons ?? []), [query.data]);
	const pages = query.data?.pages.length ?? 0;
	const rows = useLiveList(ns, "crons", query, read, {
		id: cronId,
		most: told,
		part: prefix !== "" || query.hasNextPage,
		long: pages > 3,
		join,
	});
	const again = () => pages <= 3 && query.refetch();
	useFollow(ranOf(rows), again, pollEvery);
	// Of runs before the last one nothing is told.
	const open = status !== "paused" && !!read?.some((c) => c.recent?.slice(1).some(isOpen));
	usePoll(open ? pollEvery : false, again);
	const held = useHeldRows(
		rows,
		cronId,
		`${ns} ${prefix} ${pages} ${query.isPlaceholderData} ${query.isFetchedAfterMount}`,
	);
	const columns = useMemo(() => columnsBy(by), [by]);
	const path = `/v1/crons?ns=${encodeURIComponent(ns)}&runs=${lastRuns}${prefix ? `&prefix=${encodeURIComponent(prefix)}` : ""}`;
	return (
		<Page
			title="Crons"
			name="Crons"
			actions={
				<>
					<Copy text={() => curl("GET", path)}>copy as curl</Copy>
					<Button kind="main" needs="admin" onClick={() => setMaking(true)}>
						New cron…
					</Button>
				</>
			}
		>
			<ListHead
				newer={held.newer}
				onShow={() => {
					held.show();
					query.refetch();
				}}
			>
				<span className="dim">slots by the clocks of</span>
				<Segments label="Slots by the clocks of" items={clocks} now={by} name={(c) => names[c]} onPick={setBy} />
			</ListHead>
			<ReadFailed query={query} what="The crons" />
			{query.isPending ? (
				<Loading what="the crons" />
			) : (
				<Grid
					label="Crons"
					columns={columns}
					rows={held.rows}
					id={cronId}
					onOpen={(c) => navigate({ to: "/$ns/crons/$cron", params: { ns, cron: cronId(c) } })}
					href={(c) => `/ui/${ns}/crons/${encodeURIComponent(cronId(c))}`}
					keys={{ p: (c) => void pause(c) }}
					stale={(c) => held.gone.has(cronId(c))}
					onEnd={() => query.hasNextPage && !query.isFetchingNextPage && query.fetchNextPage()}
					empty={
						query.error ? null : prefix ? (
							<Empty>No cron has a name that begins with {prefix}.</Empty>
						) : (
							<Empty
								command={`millrace queue cron set nightly '0 2 * * *' reports '{"of":"yesterday"}' --zone Europe/Berlin`}
							>
								A cron makes a task of a queue at each of its slots. There is none yet.
							</Empty>
						)
					}
				/>
			)}
			{making ? <NewCron onClose={() => setMaking(false)} /> : null}
		</Page>
	);
}
