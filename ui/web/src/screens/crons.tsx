import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, call } from "../api/client";
import { usePausing } from "../crons/acts";
import { type Clocks, clocks, lastRuns } from "../crons/cron";
import { NewCron } from "../crons/form";
import { columnsBy, cronId } from "../crons/table";
import { curl } from "../curl";
import { many } from "../format";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Loading, Page, ReadFailed, Segments } from "../parts/basic";
import { Grid } from "../parts/grid";
import { useHeldRows } from "../parts/held-rows";

const names: Record<Clocks, string> = { zone: "each cron's zone", utc: "UTC" };

/** useClocks is by which clocks slots are shown: the address says it. */
export function useClocks(): [Clocks, (c: Clocks) => void] {
	const navigate = useNavigate();
	const { view } = useSearch({ strict: false });
	const set = (c: Clocks) =>
		navigate({
			to: ".",
			search: (s: object) => ({ ...s, view: c === "zone" ? undefined : c }),
			replace: true,
		} as never);
	return [clocks.find((c) => c === view) ?? "zone", set];
}

/** Crons lists what makes tasks by a schedule: when each is due next, and how its last runs went. */
export function Crons() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const { prefix = "" } = useSearch({ strict: false });
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
		// Crons are no topic of the stream. Many pages are read again when it is asked for.
		refetchInterval: (q) => (status !== "paused" && (q.state.data?.pages.length ?? 0) <= 3 ? 5000 : false),
	});
	const rows = useMemo(() => query.data?.pages.flatMap((p) => p.crons ?? []), [query.data]);
	const held = useHeldRows(
		rows,
		cronId,
		`${ns} ${prefix} ${query.data?.pages.length} ${query.isPlaceholderData} ${query.isFetchedAfterMount}`,
	);
	const columns = useMemo(() => columnsBy(by), [by]);
	const bad = prefix !== "" && !/^[0-9A-Za-z][0-9A-Za-z._:-]*$/.test(prefix);
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
			<search className="selection">
				<input
					type="search"
					aria-label="Name begins with"
					placeholder="name begins with…"
					value={prefix}
					aria-invalid={bad}
					onChange={(e) =>
						navigate({
							to: ".",
							search: (s: object) => ({ ...s, prefix: e.target.value.trim() }),
							replace: true,
						} as never)
					}
				/>
				<span className="dim">slots by the clocks of</span>
				<Segments label="Slots by the clocks of" items={clocks} now={by} name={(c) => names[c]} onPick={setBy} />
				{held.newer > 0 ? (
					<button
						type="button"
						className="quiet"
						onClick={() => {
							held.show();
							query.refetch();
						}}
					>
						{many(held.newer, "newer", "newer")}, show
					</button>
				) : null}
			</search>
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
