import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { api, call } from "../api/client";
import { curl } from "../curl";
import { count, many, size, visible } from "../format";
import { inAddress, type KeyView, parent, readKey, showKey, toBase64 } from "../key-text";
import { useKeys } from "../keys";
import { countKeys, deleteRange, dryRunKeys, listKeys, pageKeys, stamp } from "../kv";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Loading, Page, ReadFailed, useStable } from "../parts/basic";
import { Head } from "../parts/bytes";
import { ConfigDialog, withoutVersion } from "../parts/config-dialog";
import { Confirm } from "../parts/dialog";
import { type Column, Grid } from "../parts/grid";
import { Menu } from "../parts/menu";
import { toast } from "../parts/toast";
import type { Search } from "../router";
import { KeyDialog, KeyPanel, ViewSwitch } from "./key";
import { keysOf, readKeyspace, useKeyspaces } from "./keyspaces";

/** Row is a key, or all keys below a prefix. */
interface Row {
	bytes: Uint8Array;
	below: boolean;
	size?: number;
	rev?: string;
	head?: Uint8Array;
}

/** order compares keys as the server does, by their bytes. */
function order(a: Uint8Array, b: Uint8Array): number {
	for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
	return a.length - b.length;
}

/** Keys shows the keys of a keyspace, folded at "/", and one of them. */
export function Keys() {
	const ns = useNamespace();
	const { keyspace } = useParams({ strict: false }) as { keyspace: string };
	const search = useSearch({ strict: false }) as Search;
	const navigate = useNavigate();
	const view: KeyView = search.view === "hex" ? "hex" : "text";
	const prefix = useMemo(() => readKey(search.prefix ?? "") ?? new Uint8Array(), [search.prefix]);
	const open = useMemo(() => (search.key ? readKey(search.key) : undefined), [search.key]);
	const cursor = search.at ?? "";
	const fold = search.group !== "none";
	const go = (s: Search) =>
		navigate({ to: "/$ns/kv/$keyspace", params: { ns, keyspace }, search: { ...search, ...s } as never });

	const stats = useQuery({ queryKey: ["keyspace", ns, keyspace], queryFn: () => readKeyspace(ns, keyspace) });
	const query = useQuery({
		queryKey: ["keys", ns, keyspace, toBase64(prefix), cursor, fold],
		queryFn: () => listKeys(ns, keyspace, prefix, cursor, fold),
	});
	const page = useStable(query.data);
	const rows = useMemo<Row[]>(() => {
		if (!page) return [];
		const below = page.prefixes.map((bytes): Row => ({ bytes, below: true }));
		const keys = page.pairs.map((p): Row => ({ bytes: p.key, below: false, size: p.size, rev: p.rev, head: p.head }));
		return [...below, ...keys].sort((a, b) => order(a.bytes, b.bytes));
	}, [page]);
	const [put, setPut] = useState(false);
	const [range, setRange] = useState(false);
	const [config, setConfig] = useState(false);
	const [removing, setRemoving] = useState(false);

	const columns: Column<Row>[] = [
		{
			id: "key",
			name: "key",
			cell: (r) => (
				<span className="mono" title={r.bytes.length < 1000 ? showKey(r.bytes, view) : undefined}>
					{r.below ? <span aria-hidden="true">▸ </span> : null}
					<span className="dim">{shortPrefix(prefix, view)}</span>
					{showKey(r.bytes.subarray(prefix.length, prefix.length + 256), view)}
					{r.bytes.length > prefix.length + 256 ? "…" : ""}
				</span>
			),
		},
		{
			id: "size",
			name: "size",
			num: true,
			cell: (r) => (r.below ? <span className="dim">keys below</span> : size(r.size)),
		},
		{ id: "rev", name: "rev", num: true, from: 600, cell: (r) => r.rev ?? "" },
		{ id: "value", name: "first bytes", grow: true, from: 900, cell: (r) => <Head bytes={r.head} size={r.size} /> },
	];
	const up = () => go({ prefix: showKey(parent(prefix)), at: "" });
	useKeys({
		u: () => (prefix.length > 0 ? up() : navigate({ to: "/$ns/kv", params: { ns } })),
	});
	const rest = `/v1/kv/${encodeURIComponent(keyspace)}?ns=${encodeURIComponent(ns)}&prefix=${inAddress(prefix)}&limit=${pageKeys}`;
	return (
		<Page
			name={`${keyspace} · Keys`}
			title={
				<>
					<Link to="/$ns/kv" params={{ ns }} className="dim">
						Keys
					</Link>
					<span>{visible(keyspace)}</span>
					<span className="dim">
						{many(keysOf(stats.data), "key")} · {size(stats.data?.bytes)} on disk
					</span>
					{stats.data?.over_quota ? <span className="warn">⚠ over quota: puts are refused</span> : null}
				</>
			}
			actions={
				<>
					<Button kind="main" needs="kv:write" onClick={() => setPut(true)}>
						Put a key…
					</Button>
					<Menu
						label="⋯"
						title="More of this keyspace"
						items={[
							{
								name: `Delete all keys that begin with ${prefix.length ? showKey(prefix, view).slice(0, 40) : "anything"}…`,
								needs: "kv:write",
								danger: true,
								onPick: () => setRange(true),
							},
							{ name: "Settings as JSON…", needs: "admin", onPick: () => setConfig(true) },
							{ name: "Delete this keyspace…", needs: "admin", danger: true, onPick: () => setRemoving(true) },
						]}
					/>
				</>
			}
		>
			<div className={open ? "kv kv-open" : "kv"}>
				<Others ns={ns} here={keyspace} />
				<div>
					<Crumbs prefix={prefix} view={view} onPick={(p) => go({ prefix: showKey(p), at: "" })} />
					<Find
						view={view}
						prefix={prefix}
						onFind={(bytes, exact) =>
							exact ? go({ key: showKey(bytes) }) : go({ prefix: showKey(bytes), at: "", key: "" })
						}
						onView={(v) => go({ view: v === "hex" ? "hex" : "" })}
					/>
					<label className="check">
						<input
							type="checkbox"
							checked={fold}
							onChange={(e) => go({ group: e.target.checked ? "" : "none", at: "" })}
						/>
						fold at “/”
					</label>
					<ReadFailed query={query} what="The keys" />
					{!page && query.isPending ? <Loading what="the keys" /> : null}
					{page ? (
						<>
							<Grid
								label={`Keys of ${keyspace}`}
								columns={columns}
								rows={rows}
								id={(r) => `${r.below} ${toBase64(r.bytes)}`}
								onOpen={(r) =>
									r.below ? go({ prefix: showKey(r.bytes), at: "", key: "" }) : go({ key: showKey(r.bytes) })
								}
								href={(r) =>
									`/ui/${ns}/kv/${encodeURIComponent(keyspace)}?${r.below ? "prefix" : "key"}=${encodeURIComponent(showKey(r.bytes))}`
								}
								empty={
									prefix.length > 0 || cursor ? (
										<Empty>No key begins with {showKey(prefix, view)} here.</Empty>
									) : (
										<Empty command={`millrace kv put ${keyspace} hello world`}>This keyspace is empty.</Empty>
									)
								}
							/>
							<div className="selection">
								{cursor ? (
									<button type="button" className="plain" onClick={() => go({ at: "" })}>
										First page
									</button>
								) : null}
								{page.cursor ? (
									<button type="button" className="plain" onClick={() => go({ at: page.cursor! })}>
										Next {pageKeys}
									</button>
								) : null}
								<button type="button" className="quiet" onClick={() => query.refetch()}>
									Read again
								</button>
								<Copy text={() => curl("GET", `${rest}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`)}>
									copy as curl
								</Copy>
								<span className="dim">
									{count(rows.length)} here, as of <span className="mono">{stamp(page.at)}</span>
									{page.cursor || cursor ? ": the next page is of an instant of its own" : ""}
								</span>
							</div>
						</>
					) : null}
				</div>
				{open ? (
					<div className="kv-key">
						<KeyPanel
							key={toBase64(open)}
							ns={ns}
							keyspace={keyspace}
							bytes={open}
							view={view}
							writers={stats.data?.config?.writers === true}
							onClose={() => go({ key: "" })}
						/>
					</div>
				) : null}
			</div>
			{put ? (
				<KeyDialog
					ns={ns}
					keyspace={keyspace}
					first={showKey(prefix)}
					onClose={() => setPut(false)}
					onDone={(_, key) => go({ key })}
				/>
			) : null}
			{range ? (
				<DeleteRange ns={ns} keyspace={keyspace} prefix={prefix} view={view} onClose={() => setRange(false)} />
			) : null}
			{config && stats.data ? (
				<ConfigDialog
					title={`Settings of ${keyspace}`}
					what="Quotas of this keyspace; 0 sets no limit. Puts beyond a limit are refused, deletes and reads go on. With writers, each key keeps the task that wrote it last."
					now={withoutVersion(stats.data.config)}
					needs="admin"
					again={async () => withoutVersion((await readKeyspace(ns, keyspace)).config)}
					save={async (value, version) => {
						await call(
							api.PUT("/v1/keyspaces/{keyspace}", {
								params: { path: { keyspace }, query: { ns }, header: { "If-Match": version } },
								body: value as never,
							}),
						);
						stats.refetch();
					}}
					onClose={() => setConfig(false)}
				/>
			) : null}
			{removing ? (
				<Confirm
					title={`Delete the keyspace ${keyspace}?`}
					what={<p>All of its keys ({keysOf(stats.data)}) are removed at once, and its settings.</p>}
					lost="Nothing of it can be brought back."
					needs="admin"
					verb="Delete"
					type={keyspace}
					onClose={() => setRemoving(false)}
					onConfirm={async () => {
						await call(api.DELETE("/v1/keyspaces/{keyspace}", { params: { path: { keyspace }, query: { ns } } }));
						toast(`Deleted the keyspace ${keyspace}`);
						navigate({ to: "/$ns/kv", params: { ns } });
					}}
				/>
			) : null}
		</Page>
	);
}

function shortPrefix(prefix: Uint8Array, view: KeyView): string {
	const text = showKey(prefix, view);
	return text.length > 24 ? `…${text.slice(-20)}` : text;
}

/** Others are the keyspaces of the namespace, beside the keys of one. */
function Others({ ns, here }: { ns: string; here: string }) {
	const list = useKeyspaces(ns);
	return (
		<nav className="kv-spaces" aria-label="Keyspaces">
			<ul>
				{list.data?.pages.flatMap((p) =>
					(p.keyspaces ?? []).map((k) => (
						<li key={k.keyspace}>
							<Link
								to="/$ns/kv/$keyspace"
								params={{ ns, keyspace: k.keyspace ?? "" }}
								aria-current={k.keyspace === here ? "page" : undefined}
							>
								<span>{k.keyspace}</span>
								<span className="dim">
									{k.over_quota ? "⚠ " : ""}
									{keysOf(k)}
								</span>
							</Link>
						</li>
					)),
				)}
			</ul>
			{list.hasNextPage ? (
				<button type="button" className="quiet" onClick={() => list.fetchNextPage()}>
					more
				</button>
			) : null}
		</nav>
	);
}

/** Crumbs leads up from a prefix, step by step. */
function Crumbs({ prefix, view, onPick }: { prefix: Uint8Array; view: KeyView; onPick: (p: Uint8Array) => void }) {
	if (prefix.length === 0) return null;
	const steps: Uint8Array[] = [prefix];
	for (let p = parent(prefix); ; p = parent(p)) {
		steps.unshift(p);
		if (p.length === 0 || steps.length > 12) break;
	}
	return (
		<nav className="crumbs mono" aria-label="Prefixes above">
			{steps.map((p, i) => (
				<button
					key={toBase64(p)}
					type="button"
					className="quiet"
					aria-current={i === steps.length - 1 ? "location" : undefined}
					onClick={() => onPick(p)}
				>
					{p.length === 0 ? "all keys" : showKey(p.subarray(steps[i - 1]?.length ?? 0), view).slice(0, 60)}
				</button>
			))}
		</nav>
	);
}

/** Find takes a prefix, or an exact key. */
function Find({
	view,
	prefix,
	onFind,
	onView,
}: {
	view: KeyView;
	prefix: Uint8Array;
	onFind: (bytes: Uint8Array, exact: boolean) => void;
	onView: (v: KeyView) => void;
}) {
	const [text, setText] = useState(() => showKey(prefix, view));
	useEffect(() => setText(showKey(prefix, view)), [prefix, view]);
	const field = useRef<HTMLInputElement>(null);
	useKeys({ "/": () => field.current?.focus() });
	const bytes = readKey(text, view);
	return (
		<form
			className="field-row find"
			onSubmit={(e) => {
				e.preventDefault();
				if (bytes) onFind(bytes, false);
			}}
		>
			<label className="grow">
				<span className="sr">Prefix, or exact key</span>
				<input
					ref={field}
					className="mono"
					placeholder={view === "hex" ? "prefix in hex" : "prefix, or exact key ( \\x00 is a byte )"}
					value={text}
					onChange={(e) => setText(e.target.value)}
					spellCheck={false}
					autoComplete="off"
					aria-invalid={bytes === undefined}
				/>
			</label>
			<button type="submit" className="plain" disabled={!bytes}>
				Prefix
			</button>
			<button type="button" className="plain" disabled={!bytes?.length} onClick={() => bytes && onFind(bytes, true)}>
				Exact key
			</button>
			<ViewSwitch view={view} what="a key" onChange={onView} />
		</form>
	);
}

/** DeleteRange removes all keys of a prefix, once their count was read and typed; where there are too many to count, the prefix is typed. */
function DeleteRange({
	ns,
	keyspace,
	prefix,
	view,
	onClose,
}: {
	ns: string;
	keyspace: string;
	prefix: Uint8Array;
	view: KeyView;
	onClose: () => void;
}) {
	const name = showKey(prefix, view);
	const queries = useQueryClient();
	const dry = useQuery({
		queryKey: ["keys", ns, keyspace, "count", toBase64(prefix)],
		staleTime: 0,
		queryFn: () => countKeys(ns, keyspace, prefix),
	});
	const more = dry.data?.more ?? true;
	const typed = more ? name || keyspace : String(dry.data?.count ?? 0);
	return (
		<Confirm
			title={
				prefix.length ? `Delete all keys that begin with ${name.slice(0, 60)}?` : `Delete all keys of ${keyspace}?`
			}
			what={
				dry.error ? (
					<ReadFailed query={dry} what="The count" />
				) : dry.data ? (
					<p>
						{more ? `${many(dryRunKeys, "key")} and more` : many(dry.data.count, "key")} of {keyspace}{" "}
						{!more && dry.data.count === 1 ? "is" : "are"} removed, as of{" "}
						<span className="mono">{stamp(dry.data.at)}</span>; what is put until then goes too.
					</p>
				) : (
					<p className="dim">Counting …</p>
				)
			}
			lost="The values cannot be brought back."
			needs="kv:write"
			verb="Delete"
			type={typed}
			blocked={!dry.data || dry.data.count === 0}
			onClose={onClose}
			onConfirm={async () => {
				const n = await deleteRange(ns, keyspace, prefix);
				toast(`Deleted ${many(n, "key")} of ${keyspace}`);
				queries.invalidateQueries({ queryKey: ["keys", ns, keyspace] });
				queries.invalidateQueries({ queryKey: ["kv", ns, keyspace] });
			}}
		/>
	);
}
