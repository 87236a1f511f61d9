import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useRef, useState } from "react";
import { api, call, newRequestId, type Schemas } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { count, size } from "../format";
import { useNamespace } from "../namespace";
import { Button, Empty, Id, Loading, NotDone, Page, ReadFailed, Segments, When } from "../parts/basic";
import { Confirm, Dialog } from "../parts/dialog";
import { type Column, Grid } from "../parts/grid";
import { toast } from "../parts/toast";
import type { Search } from "../router";

export type Repository = Schemas["Repo"];

/** Repos lists the repositories of the namespace, and those that can still be brought back. */
export function Repos() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const search = useSearch({ strict: false }) as Search;
	const deleted = search.only === "deleted";
	const [making, setMaking] = useState(false);
	const [back, setBack] = useState<Repository>();
	const list = useInfiniteQuery({
		queryKey: ["repos", ns, deleted],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/repos", {
					params: {
						query: {
							ns,
							limit: 100,
							...(pageParam ? { cursor: pageParam } : {}),
							...(deleted ? { deleted: "true" } : {}),
						},
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
	});
	const rows = useMemo(() => list.data?.pages.flatMap((p) => p.repos ?? []) ?? [], [list.data]);
	const columns: Column<Repository>[] = [
		{ id: "name", name: "repository", grow: true, cell: (r) => r.name },
		{
			id: "state",
			name: "state",
			cell: (r) => (r.deleted_at ? "deleted" : <RepoState state={r.config?.state} />),
		},
		{ id: "refs", name: "refs", num: true, cell: (r) => count(r.refs) },
		{ id: "packs", name: "packs", num: true, from: 900, cell: (r) => count(r.packs) },
		{ id: "bytes", name: "size", num: true, cell: (r) => size(r.bytes) },
		{ id: "rev", name: "rev", num: true, from: 600, cell: (r) => r.rev },
		{
			id: "head",
			name: "head",
			from: 600,
			cell: (r) => <span className="mono">{r.default_branch || "detached"}</span>,
		},
		{ id: "made", name: "created", from: 1200, cell: (r) => <When at={r.created_at} /> },
		{ id: "by", name: "by", from: 1200, cell: (r) => r.created_by },
		...(deleted
			? ([
					{ id: "id", name: "id", from: 900, cell: (r) => <Id id={r.id} /> },
					{ id: "gone", name: "deleted", cell: (r) => <When at={r.deleted_at} /> },
					{
						id: "back",
						name: "",
						cell: (r) => (
							<Button needs="ref:admin" onClick={() => setBack(r)}>
								Undelete…
							</Button>
						),
					},
				] satisfies Column<Repository>[])
			: []),
	];
	return (
		<Page
			title="Repositories"
			name="Repositories"
			actions={
				<>
					<Segments
						label="Which repositories"
						items={["there", "deleted"]}
						now={deleted ? "deleted" : "there"}
						onPick={(d) =>
							navigate({ to: "/$ns/repos", params: { ns }, search: d === "deleted" ? { only: "deleted" } : {} })
						}
					/>
					<Button kind="main" needs="ref:create|ref:admin" onClick={() => setMaking(true)}>
						New repository…
					</Button>
				</>
			}
		>
			<ReadFailed query={list} what="The repositories" />
			{list.isPending ? (
				<Loading what="the repositories" />
			) : (
				<Grid
					label={deleted ? "Deleted repositories" : "Repositories"}
					columns={columns}
					rows={rows}
					id={(r) => r.id ?? r.name ?? ""}
					{...(deleted
						? {}
						: {
								onOpen: (r: Repository) =>
									navigate({
										to: "/$ns/repos/$repo",
										params: { ns, repo: r.name ?? "" },
										search: r.tag ? { tag: r.tag } : {},
									}),
								href: (r: Repository) =>
									`/ui/${ns}/repos/${encodeURIComponent(r.name ?? "")}${r.tag ? `?tag=${encodeURIComponent(r.tag)}` : ""}`,
							})}
					onEnd={() => list.hasNextPage && !list.isFetchingNextPage && list.fetchNextPage()}
					empty={
						list.error ? null : deleted ? (
							<Empty>Deleted repositories are here for 7 days, and can be brought back.</Empty>
						) : (
							<Empty command="millrace ref create app">Here are the git repositories of this namespace.</Empty>
						)
					}
				/>
			)}
			{making ? <MakeRepo ns={ns} onClose={() => setMaking(false)} /> : null}
			{back ? (
				<Confirm
					title={`Bring ${back.name} back?`}
					what={
						<p>
							The repository with the id <span className="mono">{back.id}</span> gets its name, refs and objects again.
							It is refused where that name is taken by now.
						</p>
					}
					needs="ref:admin"
					verb="Undelete"
					onClose={() => setBack(undefined)}
					onConfirm={async () => {
						await call(
							api.POST("/v1/repos/{repo}/undelete", {
								params: { path: { repo: back.name ?? "" }, query: { ns, ...(back.tag ? { tag: back.tag } : {}) } },
								body: { id: back.id ?? "" },
							}),
						);
						await list.refetch();
						toast(`${back.name} is back`, {
							action: {
								name: "Open",
								run: () =>
									void navigate({
										to: "/$ns/repos/$repo",
										params: { ns, repo: back.name ?? "" },
										search: back.tag ? { tag: back.tag } : {},
									}),
							},
						});
					}}
				/>
			) : null}
		</Page>
	);
}

/** RepoState shows whether a repository takes changes. */
export function RepoState({ state }: { state: string | undefined }) {
	if (state === "archived") return <span className="state hue-cancelled">⊘ archived</span>;
	if (state === "importing") return <span className="state hue-scheduled">◷ importing</span>;
	return <span className="state hue-completed">● ready</span>;
}

function MakeRepo({ ns, onClose }: { ns: string; onClose: () => void }) {
	const navigate = useNavigate();
	const [name, setName] = useState("");
	const [branch, setBranch] = useState("main");
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const sent = useRef({ what: "", id: "" });
	const make = async () => {
		if (busy || !name) return;
		const what = `${name} ${branch}`;
		if (sent.current.what !== what) sent.current = { what, id: newRequestId() };
		setBusy(true);
		setError(undefined);
		try {
			await call(
				api.POST("/v1/repos", {
					params: { query: { ns } },
					body: { name, default_branch: branch, request_id: sent.current.id },
				}),
			);
			onClose();
			navigate({ to: "/$ns/repos/$repo", params: { ns, repo: name } });
		} catch (e) {
			setError(asApiError(e));
			setBusy(false);
		}
	};
	return (
		<Dialog title="New repository" onClose={onClose}>
			<form
				onSubmit={(e) => {
					e.preventDefault();
					make();
				}}
			>
				<label className="field">
					Name
					<input value={name} onChange={(e) => setName(e.target.value.trim())} spellCheck={false} autoComplete="off" />
				</label>
				<label className="field">
					Default branch
					<input
						value={branch}
						onChange={(e) => setBranch(e.target.value.trim())}
						spellCheck={false}
						autoComplete="off"
					/>
				</label>
				{error ? <NotDone error={error} /> : null}
				<footer>
					<span className="dim">takes the scope ref:create</span>
					<button type="button" className="plain" onClick={onClose}>
						Keep
					</button>
					<Button kind="main" needs="ref:create|ref:admin" disabled={!name || busy} onClick={make}>
						{error?.outcome === "unknown" ? "Ask again" : "Make it"}
					</Button>
				</footer>
			</form>
		</Dialog>
	);
}
