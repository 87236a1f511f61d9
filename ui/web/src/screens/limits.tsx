import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, call } from "../api/client";
import { curl } from "../curl";
import { count } from "../format";
import { LimiterDialog, readLimiter } from "../limits/form";
import { type Limiter, limiterId } from "../limits/limiter";
import { Quotas, usePartitions } from "../limits/quota-view";
import { Holders, LimiterState, Used } from "../limits/view";
import { useFollow, useLiveList } from "../live/follow";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Loading, Page, ReadFailed, When } from "../parts/basic";
import { rateText } from "../parts/bounds";
import { type Column, Grid } from "../parts/grid";
import { useHeldRows } from "../parts/held-rows";
import { LimiterLink } from "../parts/links";
import { ListHead, usePrefix } from "../parts/list-head";

/** A topic tells of all limiters: a namespace has at most this many. */
const told = 1001;

/** Limits shows what bounds the work of the namespace as a whole: its limiters, its own bounds and those of the tenant. */
export function Limits() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const prefix = usePrefix();
	const [making, setMaking] = useState(false);
	const partitions = usePartitions();
	const query = useInfiniteQuery({
		queryKey: [ns, "limiters", prefix],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/limiters", {
					params: {
						query: { limit: 100, ...(prefix ? { prefix } : {}), ...(pageParam ? { cursor: pageParam } : {}) },
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
		placeholderData: (before) => before,
	});
	const read = useMemo(() => query.data?.pages.flatMap((p) => p.limiters ?? []), [query.data]);
	const pages = query.data?.pages.length ?? 0;
	const rows = useLiveList(ns, "limiters", query, read, {
		id: limiterId,
		most: told,
		part: prefix !== "" || query.hasNextPage,
		long: pages > 3,
	});
	const held = useHeldRows(
		rows,
		limiterId,
		`${ns} ${prefix} ${pages} ${query.isPlaceholderData} ${query.isFetchedAfterMount}`,
	);
	const columns = useMemo(() => columnsOf(ns, partitions), [ns, partitions]);
	const path = `/v1/limiters?ns=${encodeURIComponent(ns)}${prefix ? `&prefix=${encodeURIComponent(prefix)}` : ""}`;
	return (
		<Page
			title="Limits"
			name="Limits"
			actions={
				<>
					<Copy text={() => curl("GET", path)}>copy as curl</Copy>
					<Button kind="main" needs="admin" onClick={() => setMaking(true)}>
						New limiter…
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
				<span className="dim">
					Limiters: what tasks of several queues share. The limits of one queue are on its page.
				</span>
			</ListHead>
			<ReadFailed query={query} what="The limiters" />
			{query.isPending ? (
				<Loading what="the limiters" />
			) : (
				<Grid
					label="Limiters"
					columns={columns}
					rows={held.rows}
					id={limiterId}
					onOpen={(x) => navigate({ to: "/$ns/limits/$limiter", params: { ns, limiter: limiterId(x) } })}
					href={(x) => `/ui/${ns}/limits/${encodeURIComponent(limiterId(x))}`}
					detail={(x) => <Detail limiter={x} />}
					stale={(x) => held.gone.has(limiterId(x))}
					onEnd={() => query.hasNextPage && !query.isFetchingNextPage && query.fetchNextPage()}
					empty={
						query.error ? null : prefix ? (
							<Empty>No limiter has a name that begins with {prefix}.</Empty>
						) : (
							<Empty command="millrace limiter set api --concurrency 20 --rate 600/1m">
								A limiter bounds what runs of all tasks that name it, whatever their queues. There is none yet.
							</Empty>
						)
					}
				/>
			)}
			<Quotas />
			{making ? <LimiterDialog onClose={() => setMaking(false)} /> : null}
		</Page>
	);
}

/** Detail is who holds a limiter: it is read when it is looked at, and again when something of it moves. */
function Detail({ limiter: x }: { limiter: Limiter }) {
	const ns = useNamespace();
	const name = limiterId(x);
	const query = useQuery({
		queryKey: [ns, "limiter", name],
		queryFn: () => readLimiter(name),
		retry: false,
	});
	useFollow(`${x.used} ${x.tasks}`, query.refetch, 1000);
	if (query.error) return <ReadFailed query={query} what="The limiter" />;
	return query.data ? <Holders limiter={query.data} /> : <Loading what="who holds it" />;
}

const columnsOf = (ns: string, partitions: number): Column<Limiter>[] => [
	{ id: "name", name: "limiter", grow: true, cell: (x) => <LimiterLink ns={ns} name={x.name} /> },
	{ id: "state", name: "state", cell: (x) => <LimiterState limiter={x} partitions={partitions} /> },
	{ id: "used", name: "used / at once", num: true, cell: (x) => <Used limiter={x} partitions={partitions} /> },
	{
		id: "rate",
		name: "rate",
		num: true,
		from: 600,
		cell: (x) => rateText(x.rate) ?? <span className="dim">no bound</span>,
	},
	{ id: "until", name: "next begins", num: true, from: 900, cell: (x) => (x.until ? <When at={x.until} /> : "now") },
	{
		id: "tasks",
		name: "tasks that name it",
		num: true,
		from: 600,
		cell: (x) => <span title="that have not ended">{count(x.tasks)}</span>,
	},
];
