import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, call } from "../api/client";
import { type Batch, batchId, endedText } from "../batches/batch";
import { OpenBatch } from "../batches/open";
import { Bar, BatchState } from "../batches/view";
import { curl } from "../curl";
import { count, visible } from "../format";
import { pollEvery } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Loading, Page, ReadFailed, When } from "../parts/basic";
import { type Column, Grid } from "../parts/grid";
import { useHeldRows } from "../parts/held-rows";
import { BatchLink } from "../parts/links";
import { Newer } from "../parts/list-head";

/** Batches lists tasks that are counted together: how far each batch is, and how it went. */
export function Batches() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const status = useLiveStatus(ns);
	const [opening, setOpening] = useState(false);
	const query = useInfiniteQuery({
		queryKey: [ns, "batches"],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(api.GET("/v1/batches", { params: { query: { limit: 100, ...(pageParam ? { cursor: pageParam } : {}) } } })),
		getNextPageParam: (last) => last.cursor || undefined,
		// Batches are not in the order of a key, so no topic tells of a page of them. Many pages are read again when it is asked for.
		refetchInterval: (q) => (status !== "paused" && (q.state.data?.pages.length ?? 0) <= 3 ? pollEvery : false),
	});
	const rows = useMemo(() => query.data?.pages.flatMap((p) => p.batches ?? []), [query.data]);
	const held = useHeldRows(rows, batchId, `${ns} ${query.data?.pages.length} ${query.isFetchedAfterMount}`);
	const columns = useMemo(() => columnsOf(ns), [ns]);
	return (
		<Page
			title="Batches"
			name="Batches"
			actions={
				<>
					<Copy text={() => curl("GET", `/v1/batches?ns=${encodeURIComponent(ns)}`)}>copy as curl</Copy>
					<Button kind="main" needs="task:create" onClick={() => setOpening(true)}>
						Open a batch…
					</Button>
				</>
			}
		>
			<div className="selection">
				<span className="dim">The last opened first. Those that have finished are kept for 7 days.</span>
				<Newer
					newer={held.newer}
					again="read again"
					onShow={() => {
						held.show();
						query.refetch();
					}}
				/>
			</div>
			<ReadFailed query={query} what="The batches" />
			{query.isPending ? (
				<Loading what="the batches" />
			) : (
				<Grid
					label="Batches"
					columns={columns}
					rows={held.rows}
					id={batchId}
					onOpen={(b) => navigate({ to: "/$ns/batches/$batch", params: { ns, batch: batchId(b) } })}
					href={(b) => `/ui/${ns}/batches/${batchId(b)}`}
					stale={(b) => held.gone.has(batchId(b))}
					onEnd={() => query.hasNextPage && !query.isFetchingNextPage && query.fetchNextPage()}
					empty={
						query.error ? null : (
							<Empty command={`millrace batch open --on-done 'reports={"of":"import"}'`}>
								A batch counts the tasks that are added to it, and makes a task when all have ended. There is none yet.
							</Empty>
						)
					}
				/>
			)}
			{opening ? <OpenBatch onClose={() => setOpening(false)} /> : null}
		</Page>
	);
}

const dash = <span className="dim">–</span>;

/** labelsText writes labels in one line. */
const labelsText = (b: Batch) =>
	Object.entries((b.labels ?? {}) as Record<string, string>)
		.map(([k, v]) => `${k}=${v}`)
		.join(" ");

const columnsOf = (ns: string): Column<Batch>[] => [
	{ id: "id", name: "batch", cell: (b) => <BatchLink ns={ns} id={b.id} /> },
	{ id: "state", name: "state", cell: (b) => <BatchState batch={b} /> },
	{
		id: "ended",
		name: "ended / tasks",
		num: true,
		cell: (b) => <span title="that have ended / that were added">{endedText(b.counts)}</span>,
	},
	{ id: "bar", name: "of which", from: 600, cell: (b) => (b.counts?.total ? <Bar batch={b} /> : dash) },
	{
		id: "dead",
		name: "dead",
		num: true,
		cell: (b) => (b.counts?.dead ? <span className="hue-dead">{count(b.counts.dead)}</span> : "0"),
	},
	{
		id: "labels",
		name: "labels",
		grow: true,
		from: 600,
		cell: (b) => (labelsText(b) ? <span className="mono">{visible(labelsText(b))}</span> : dash),
	},
	{
		id: "follow",
		name: "then",
		from: 900,
		cell: (b) => [b.on_done?.queue, b.on_success?.queue].filter(Boolean).map(visibleOf).join(", ") || dash,
	},
	{ id: "by", name: "by", from: 1200, cell: (b) => b.by || dash },
	{ id: "opened", name: "opened", from: 600, cell: (b) => <When at={b.opened_at} /> },
	{ id: "finished", name: "finished", from: 900, cell: (b) => <When at={b.finished_at} /> },
];

const visibleOf = (queue: string | undefined) => visible(queue ?? "");
