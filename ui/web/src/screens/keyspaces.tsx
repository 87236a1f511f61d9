import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, call, type Schemas } from "../api/client";
import { count, size } from "../format";
import { useNamespace } from "../namespace";
import { Button, Empty, Loading, Page, ReadFailed } from "../parts/basic";
import { type Column, Grid } from "../parts/grid";
import { KeyDialog } from "./key";

type Keyspace = Schemas["KeyspaceStats"];

/** useKeyspaces reads the keyspaces of a namespace, page by page, with what is in them, counted up to a bound. */
export function useKeyspaces(ns: string) {
	return useInfiniteQuery({
		queryKey: ["keyspaces", ns],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/keyspaces", {
					params: { query: { ns, limit: 100, stats: "true", ...(pageParam ? { cursor: pageParam } : {}) } },
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
	});
}

/** keysOf says how many keys there are: "+" where counting stopped. */
export function keysOf(k: Keyspace | undefined): string {
	return k?.keys === undefined ? "–" : `${count(k.keys)}${k.more_keys ? "+" : ""}`;
}

/** Keyspaces lists where keys are. */
export function Keyspaces() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const list = useKeyspaces(ns);
	const [put, setPut] = useState(false);
	const rows = useMemo(() => list.data?.pages.flatMap((p) => p.keyspaces ?? []) ?? [], [list.data]);
	const columns: Column<Keyspace>[] = [
		{ id: "name", name: "keyspace", grow: true, cell: (k) => k.keyspace },
		{ id: "keys", name: "keys", num: true, cell: keysOf },
		{ id: "bytes", name: "on disk", num: true, cell: (k) => size(k.bytes) },
		{
			id: "quota",
			name: "quota",
			num: true,
			from: 600,
			cell: (k) => (k.config?.quota?.bytes ? size(k.config.quota.bytes) : <span className="dim">none</span>),
		},
		{
			id: "rate",
			name: "writes/s",
			num: true,
			from: 900,
			cell: (k) =>
				k.config?.quota?.writes_per_second ? (
					count(k.config.quota.writes_per_second)
				) : (
					<span className="dim">no limit</span>
				),
		},
		{
			id: "state",
			name: "state",
			cell: (k) => (k.over_quota ? <span className="warn">⚠ over quota: puts are refused</span> : null),
		},
	];
	return (
		<Page
			title="Keyspaces"
			name="Keyspaces"
			actions={
				<Button kind="main" needs="kv:write" onClick={() => setPut(true)}>
					Put a key…
				</Button>
			}
		>
			<ReadFailed query={list} what="The keyspaces" />
			{list.isPending ? (
				<Loading what="the keyspaces" />
			) : (
				<Grid
					label="Keyspaces"
					columns={columns}
					rows={rows}
					id={(k) => k.keyspace ?? ""}
					onOpen={(k) => navigate({ to: "/$ns/kv/$keyspace", params: { ns, keyspace: k.keyspace ?? "" } })}
					href={(k) => `/ui/${ns}/kv/${encodeURIComponent(k.keyspace ?? "")}`}
					onEnd={() => list.hasNextPage && !list.isFetchingNextPage && list.fetchNextPage()}
					empty={
						list.error ? null : (
							<Empty command="millrace kv put counts hello world">A keyspace appears with its first key.</Empty>
						)
					}
				/>
			)}
			<p className="dim">“+” is where counting stopped: nothing is scanned beyond a bound.</p>
			{put ? (
				<KeyDialog
					ns={ns}
					keyspace={undefined}
					onClose={() => setPut(false)}
					onDone={(keyspace, key) => navigate({ to: "/$ns/kv/$keyspace", params: { ns, keyspace }, search: { key } })}
				/>
			) : null}
		</Page>
	);
}

/** readKeyspace reads the settings of a keyspace and counts what is in it, up to a bound. */
export function readKeyspace(ns: string, keyspace: string) {
	return call(api.GET("/v1/keyspaces/{keyspace}", { params: { path: { keyspace }, query: { ns } } }));
}
