import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { useAddress } from "../address";
import { api, call, type Schemas } from "../api/client";
import { asApiError } from "../api/errors";
import { count } from "../format";
import { useRows } from "../live/live";
import { useNamespace } from "../namespace";
import { Button, Empty, Loading, Page, ReadFailed, Segments } from "../parts/basic";
import { BulkDialog } from "../parts/bulk-dialog";
import { Grid } from "../parts/grid";
import { ListHead, usePrefix } from "../parts/list-head";
import { operate, PauseDialog, useResume } from "../parts/queue-acts";
import { columns, queueId } from "../parts/queue-table";
import { NewQueue } from "./queue-settings";

type QueueStats = Schemas["QueueStats"];

const sorts = ["name", "ready", "oldest", "dead", "rate"] as const;
const onlys = ["paused", "stuck", "dead"] as const;
type Sort = (typeof sorts)[number];

const oneOf = <T extends string>(list: readonly T[], s: string | undefined): T | undefined => list.find((x) => x === s);

/** Queues lists the queues of a namespace: their order is of when they were read, their figures are live. */
export function Queues() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const search = useSearch({ strict: false });
	const sort: Sort = oneOf(sorts, search.sort) ?? "name";
	const only = oneOf(onlys, search.only);
	const prefix = usePrefix();
	const [marked, setMarked] = useState<ReadonlySet<string>>(new Set());
	const [dialog, setDialog] = useState<"pause" | "redrive" | "new">();
	const [resume, resuming] = useResume();

	const query = useInfiniteQuery({
		queryKey: [ns, "queues", prefix, sort, only],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/queues", {
					params: {
						query: {
							limit: 100,
							sort,
							...(prefix ? { prefix } : {}),
							...(only ? { only } : {}),
							...(pageParam ? { cursor: pageParam } : {}),
						},
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
		placeholderData: (before) => before,
		refetchOnWindowFocus: false,
	});
	const live = useRows<QueueStats>(ns, "queues");
	// Where no node leads, the stream has what this node knows, by name.
	const unled = query.error ? asApiError(query.error).unled : false;
	const read = useMemo(
		() =>
			query.data?.pages.flatMap((p) => p.queues ?? []) ??
			(unled ? (live ?? []).filter((q) => queueId(q).startsWith(prefix)) : []),
		[query.data, unled, live, prefix],
	);
	const now = useMemo(() => new Map((live ?? []).map((q) => [queueId(q), q])), [live]);
	const rows = useMemo(() => read.map((q) => now.get(queueId(q)) ?? q), [read, now]);
	const known = useMemo(() => new Set(read.map(queueId)), [read]);
	// Queues that came since; a filter by state is left to the server.
	const newer =
		only || query.hasNextPage
			? 0
			: [...now.keys()].filter((name) => name.startsWith(prefix) && !known.has(name)).length;

	const set = useAddress();
	const chosen = [...marked];
	const end = useCallback(() => {
		if (query.hasNextPage && !query.isFetching) query.fetchNextPage();
	}, [query.hasNextPage, query.isFetching, query.fetchNextPage]);

	return (
		<Page
			title="Queues"
			name="Queues"
			actions={
				<Button needs="admin" onClick={() => setDialog("new")}>
					New queue…
				</Button>
			}
		>
			<ListHead newer={newer} again="sort again" onShow={() => query.refetch()}>
				<label>
					sort{" "}
					<select value={sort} onChange={(e) => set({ sort: e.target.value })}>
						{sorts.map((s) => (
							<option key={s}>{s}</option>
						))}
					</select>
				</label>
				<Segments
					label="Show only"
					items={onlys}
					now={only}
					onPick={(o) => set({ only: only === o ? undefined : o })}
				/>
			</ListHead>
			{chosen.length > 0 ? (
				<section className="selection" aria-label="Marked queues">
					<strong>{count(chosen.length)} marked:</strong>
					<Button needs={operate} onClick={() => setDialog("pause")}>
						Pause…
					</Button>
					<Button needs={operate} disabled={resuming} onClick={() => resume(chosen)}>
						Resume
					</Button>
					<Button needs={operate} onClick={() => setDialog("redrive")}>
						Redrive dead…
					</Button>
					<button type="button" className="quiet" onClick={() => setMarked(new Set())}>
						unmark
					</button>
				</section>
			) : null}
			{query.error && !(unled && read.length > 0) ? (
				<ReadFailed query={query} what="The queues" />
			) : query.data || unled ? (
				<Grid
					label="Queues"
					columns={columns}
					rows={rows}
					id={queueId}
					marked={marked}
					onMark={setMarked}
					sort={sort}
					onSort={(s) => set({ sort: s })}
					onOpen={(q) => navigate({ to: "/$ns/queues/$queue", params: { ns, queue: queueId(q) } })}
					href={(q) => `/ui/${ns}/queues/${queueId(q)}`}
					keys={{
						p: (q) => {
							setMarked(new Set([queueId(q)]));
							setDialog("pause");
						},
					}}
					stale={(q) => !!live && live.length < 1000 && !now.has(queueId(q))}
					onEnd={end}
					empty={
						prefix || only ? (
							<Empty>
								No queue{prefix ? ` whose name begins with ${prefix}` : ""}{" "}
								{only === "dead" ? "has dead tasks" : only ? `is ${only}` : "is there"}.
							</Empty>
						) : (
							<Empty command={`millrace task create mail '{"to":"ada"}'`}>A queue appears with its first task.</Empty>
						)
					}
				/>
			) : (
				<Loading what="the queues" />
			)}
			{dialog === "pause" ? <PauseDialog queues={chosen} onClose={() => setDialog(undefined)} /> : null}
			{dialog === "redrive" ? (
				<BulkDialog
					action="redrive"
					title={`Redrive the dead of ${chosen.length === 1 ? chosen[0] : `${chosen.length} queues`}`}
					filter={chosen.map((queue) => ({ queue }))}
					onClose={() => setDialog(undefined)}
				/>
			) : null}
			{dialog === "new" ? <NewQueue onClose={() => setDialog(undefined)} /> : null}
		</Page>
	);
}
