import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { api, call, newRequestId, type Schemas } from "../api/client";
import { asApiError } from "../api/errors";
import { curl } from "../curl";
import { clock, count, many, parseTime, size, visible } from "../format";
import { useKeys } from "../keys";
import { useNamespace } from "../namespace";
import {
	Button,
	Command,
	Copy,
	Empty,
	Facts,
	Failed,
	Loading,
	Page,
	Panel,
	ReadFailed,
	Segments,
	Tabs,
	useStable,
	When,
} from "../parts/basic";
import { ConfigDialog, withoutVersion } from "../parts/config-dialog";
import { Confirm } from "../parts/dialog";
import { type Column, Grid } from "../parts/grid";
import { Menu } from "../parts/menu";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { isObject, type Move, objections, type Rule, rulesOf, words } from "../ref-rules";
import type { Search } from "../router";
import { useSession } from "../session";
import { useSettings } from "../settings";
import { RepoState, type Repository } from "./repos";

type Ref = Schemas["Ref"];
/** Entry is a record of a log; that of one ref does not name it. */
type Entry = Schemas["RefMove"];

/** A page of refs. */
const pageRefs = 200;

/** Place is a repository: its namespace, its name, and its tag where it has one. */
interface Place {
	ns: string;
	repo: string;
	tag: string;
}

const tagged = (p: Place) => ({ ns: p.ns, ...(p.tag ? { tag: p.tag } : {}) });

function readRepo(p: Place) {
	return call(api.GET("/v1/repos/{repo}", { params: { path: { repo: p.repo }, query: tagged(p) } }));
}

/** Repo shows one repository: its refs and their logs, what moved lately, its rules and its settings. */
export function Repo() {
	const ns = useNamespace();
	const { repo, tab = "refs" } = useParams({ strict: false }) as { repo: string; tab?: string };
	const search = useSearch({ strict: false }) as Search;
	const place: Place = useMemo(() => ({ ns, repo, tag: search.tag ?? "" }), [ns, repo, search.tag]);
	const navigate = useNavigate();
	const query = useQuery({ queryKey: ["repo", ns, repo, place.tag], queryFn: () => readRepo(place) });
	const [config, setConfig] = useState(false);
	const [removing, setRemoving] = useState(false);
	const found = query.data;
	const to = (t: string) => ({
		to: t === "refs" ? "/$ns/repos/$repo" : "/$ns/repos/$repo/$tab",
		params: { ns, repo, tab: t },
		search: place.tag ? { tag: place.tag } : {},
	});
	const names = ["refs", "activity", "rules", "settings"];
	const keys: Record<string, () => void> = { u: () => void navigate({ to: "/$ns/repos", params: { ns } }) };
	names.forEach((n, i) => {
		keys[String(i + 1)] = () => void navigate(to(n) as never);
	});
	useKeys(keys);
	const clone = `git clone ${location.origin}/git/${ns}/${repo}.git`;
	return (
		<Page
			name={`${repo} · Repositories`}
			title={
				<>
					<Link to="/$ns/repos" params={{ ns }} className="dim">
						Repositories
					</Link>
					<span>{repo}</span>
					{found ? (
						<span className="dim">
							<RepoState state={found.config?.state} /> · {many(found.refs, "ref")} · {many(found.packs, "pack")} ·{" "}
							{size(found.bytes)} · rev {found.rev}
						</span>
					) : null}
				</>
			}
			actions={
				<>
					<Command text={clone} />
					<Menu
						label="⋯"
						title="More of this repository"
						items={[
							{ name: "Settings as JSON…", needs: "ref:admin", onPick: () => setConfig(true) },
							{ name: "Delete this repository…", needs: "ref:admin", danger: true, onPick: () => setRemoving(true) },
						]}
					/>
				</>
			}
		>
			<ReadFailed query={query} what="The repository" />
			<Tabs
				label={`Views of ${repo}`}
				items={names.map((n) => ({ name: n[0]!.toUpperCase() + n.slice(1), link: to(n) as never }))}
			/>
			{tab === "refs" ? <Refs place={place} found={found} /> : null}
			{tab === "activity" ? <Activity place={place} /> : null}
			{tab === "rules" ? <Rules found={found} onEdit={() => setConfig(true)} /> : null}
			{tab === "settings" ? <RepoSettings found={found} onEdit={() => setConfig(true)} /> : null}
			{config && found ? (
				<ConfigDialog
					title={`Settings of ${repo}`}
					what="Rules, state, bounds and log of this repository, all at once: what is left out has its default."
					now={withoutVersion(found.config)}
					needs="ref:admin"
					again={async () => withoutVersion((await readRepo(place)).config)}
					save={async (value, version) => {
						await call(
							api.PUT("/v1/repos/{repo}", {
								params: { path: { repo }, query: tagged(place), header: { "If-Match": version } },
								body: { config: value as never },
							}),
						);
						query.refetch();
					}}
					onClose={() => setConfig(false)}
				/>
			) : null}
			{removing && found ? (
				<Confirm
					title={`Delete the repository ${repo}?`}
					what={
						<p>
							Its {many(found.refs, "ref")} and {size(found.bytes)} of objects are not served any more. Its name is free
							at once.
						</p>
					}
					lost="For 7 days it can be brought back from the list of deleted repositories; after that it is gone."
					needs="ref:admin"
					verb="Delete"
					type={repo}
					onClose={() => setRemoving(false)}
					onConfirm={async () => {
						await call(
							api.DELETE("/v1/repos/{repo}", {
								params: {
									path: { repo },
									query: tagged(place),
									header: { "If-Match": String(found.config?.version ?? "0") },
								},
							}),
						);
						toast(`Deleted ${repo}`, {
							action: {
								name: "Deleted repositories",
								run: () => void navigate({ to: "/$ns/repos", params: { ns }, search: { only: "deleted" } }),
							},
						});
						navigate({ to: "/$ns/repos", params: { ns } });
					}}
				/>
			) : null}
		</Page>
	);
}

/** Sha shows an id of an object by its first digits. */
function Sha({ id }: { id: string | undefined }) {
	if (!id) return <span className="dim">–</span>;
	return (
		<span className="nobreak">
			<span className="mono" title={id}>
				{id.slice(0, 10)}
			</span>
			<Copy text={id} label={`Copy ${id}`} />
		</span>
	);
}

/** placeAfter is where the next page begins, as it stands in the address: the name of the last ref, in the order of changes after its rev. */
const placeAfter = (page: Schemas["RefPage"]) =>
	page.after_rev === undefined ? page.after! : `${page.after_rev} ${page.after}`;

/** afterMoved reads it. */
function afterMoved(at: string): { after?: string; after_rev?: number } {
	const m = /^(\d+) (.+)$/.exec(at);
	return m ? { after_rev: Number(m[1]), after: m[2]! } : {};
}

/** Refs lists refs page by page, and the log of one of them beside. */
function Refs({ place, found }: { place: Place; found: Repository | undefined }) {
	const { ns, repo } = place;
	const search = useSearch({ strict: false }) as Search;
	const navigate = useNavigate();
	const filter = search.q ?? "";
	const after = search.at ?? "";
	const sort = search.sort === "moved" ? "moved" : "name";
	const go = (s: Search) =>
		navigate({ to: "/$ns/repos/$repo", params: { ns, repo }, search: { ...search, ...s } as never });
	const query = useQuery({
		queryKey: ["refs", ns, repo, place.tag, filter, after, sort],
		queryFn: () =>
			call(
				api.GET("/v1/repos/{repo}/refs", {
					params: {
						path: { repo },
						query: {
							...tagged(place),
							limit: pageRefs,
							...(filter.includes("*") ? { glob: [filter] } : filter ? { prefix: filter } : {}),
							...(sort === "moved" ? { sort, ...afterMoved(after) } : after ? { after } : {}),
						},
					},
				}),
			),
	});
	const page = useStable(query.data as Schemas["RefPage"] | undefined);
	const [move, setMove] = useState<{ name: string; old: string } | undefined>();
	const columns: Column<Ref>[] = [
		{ id: "name", name: "name", grow: true, cell: (r) => <span className="mono">{visible(r.name ?? "")}</span> },
		{
			id: "to",
			name: "points to",
			cell: (r) => (r.target ? <span className="mono">→ {r.target}</span> : <Sha id={r.id} />),
		},
		// Beside a log there is room for the names.
		...(search.ref
			? []
			: ([
					{
						id: "type",
						name: "type",
						from: 600,
						cell: (r) =>
							r.target ? "symbolic" : r.peeled ? <span title={`finally ${r.peeled}`}>tag of a commit</span> : r.type,
					},
					{ id: "rev", name: "moved at rev", num: true, from: 600, cell: (r) => r.rev },
					{
						id: "rules",
						name: "rules",
						from: 900,
						cell: (r) => <RuleWords rules={found?.config?.rules} name={r.name ?? ""} />,
					},
				] satisfies Column<Ref>[])),
	];
	return (
		<div className={search.ref ? "kv kv-log" : "kv kv-alone"}>
			<div>
				<Segments
					label="Order"
					items={["name", "moved"]}
					now={sort}
					name={(o) => (o === "moved" ? "last moved first" : "by name")}
					onPick={(o) => go({ sort: o === "moved" ? o : "", at: "" })}
				/>
				<RefFilter filter={filter} onFilter={(q) => go({ q, at: "" })} onLog={(ref) => go({ ref, n: "" } as Search)} />
				<ReadFailed query={query} what="The refs" />
				{!page && query.isPending ? <Loading what="the refs" /> : null}
				{page?.partial ? (
					<p className="warn">
						⚠ There are more refs than one request looks at: only those that come first by name are here. A prefix finds
						the others.
					</p>
				) : null}
				{page ? (
					<>
						<Grid
							label={`Refs of ${repo}`}
							columns={columns}
							rows={page.refs ?? []}
							id={(r) => r.name ?? ""}
							onOpen={(r) => go({ ref: r.name ?? "" })}
							href={(r) => `/ui/${ns}/repos/${encodeURIComponent(repo)}?ref=${encodeURIComponent(r.name ?? "")}`}
							empty={
								filter || after ? (
									<Empty>No ref matches {filter}.</Empty>
								) : (
									<Empty command={`git push ${location.origin}/git/${ns}/${repo}.git main`}>
										This repository has no refs: they come with the first push.
									</Empty>
								)
							}
						/>
						<div className="selection">
							{after ? (
								<button type="button" className="plain" onClick={() => go({ at: "" })}>
									First page
								</button>
							) : null}
							{page.after ? (
								<button type="button" className="plain" onClick={() => go({ at: placeAfter(page) })}>
									Next {pageRefs}
								</button>
							) : null}
							<Button needs="ref:write" onClick={() => setMove({ name: "refs/heads/", old: "" })}>
								Create a ref…
							</Button>
							<Copy
								text={() =>
									curl(
										"GET",
										`/v1/repos/${encodeURIComponent(repo)}/refs?ns=${encodeURIComponent(ns)}&limit=${pageRefs}${sort === "moved" ? "&sort=moved" : ""}${filter ? `&${filter.includes("*") ? "glob" : "prefix"}=${encodeURIComponent(filter)}` : ""}`,
									)
								}
							>
								copy as curl
							</Copy>
							<span className="dim">
								rev {page.rev}, as of index <span className="mono">{page.index}</span>
							</span>
						</div>
					</>
				) : null}
			</div>
			{search.ref ? (
				<div className="kv-key">
					<Reflog
						key={search.ref}
						place={place}
						name={search.ref}
						rules={found?.config?.rules}
						onMove={(name, old) => setMove({ name, old })}
						onClose={() => go({ ref: "" })}
					/>
				</div>
			) : null}
			{move ? (
				<MoveRef place={place} rules={found?.config?.rules} first={move} onClose={() => setMove(undefined)} />
			) : null}
		</div>
	);
}

function RuleWords({ rules, name }: { rules: readonly Rule[] | undefined; name: string }) {
	const all = rulesOf(rules, name);
	if (all.length === 0) return <span className="dim">–</span>;
	const text = all.map(({ number, rule }) => `rule ${number}: ${words(rule)}`).join(" · ");
	return <span title={text}>{all.map(({ rule }) => words(rule)).join(" · ")}</span>;
}

/** RefFilter takes a prefix or a glob, and the name of a ref whose log is wanted, be it deleted or not. */
function RefFilter({
	filter,
	onFilter,
	onLog,
}: {
	filter: string;
	onFilter: (q: string) => void;
	onLog: (name: string) => void;
}) {
	const [text, setText] = useState(filter);
	useEffect(() => setText(filter), [filter]);
	const field = useRef<HTMLInputElement>(null);
	useKeys({ "/": () => field.current?.focus() });
	return (
		<form
			className="field-row find"
			onSubmit={(e) => {
				e.preventDefault();
				onFilter(text.trim());
			}}
		>
			<label className="grow">
				<span className="sr">Prefix or glob of names, or a whole name</span>
				<input
					ref={field}
					className="mono"
					placeholder="refs/heads/…  or  refs/**/fix-*"
					value={text}
					onChange={(e) => setText(e.target.value)}
					spellCheck={false}
					autoComplete="off"
				/>
			</label>
			<button type="submit" className="plain">
				Filter
			</button>
			<button
				type="button"
				className="plain"
				disabled={!text.trim() || text.includes("*")}
				title="Also of a ref that was deleted"
				onClick={() => onLog(text.trim())}
			>
				Log of this ref
			</button>
		</form>
	);
}

/** How says through which door a ref moved. */
function How({ ns, e }: { ns: string; e: Entry }) {
	if (e.task)
		return (
			<>
				<Link to="/$ns/tasks/$id/$tab" params={{ ns, id: e.task, tab: "effects" }} className="mono" title={e.task}>
					task …{e.task.slice(-6)}
				</Link>
				{e.token && e.token !== "0" ? <span className="dim"> token {e.token}</span> : null}
			</>
		);
	return <span title={e.request ? `request ${e.request}` : undefined}>{e.cause}</span>;
}

function Change({ e }: { e: Entry }) {
	const side = (id: string | undefined, target: string | undefined) =>
		target ? <span className="mono">{target}</span> : <Sha id={id} />;
	return (
		<span className="nobreak">
			{side(e.old, e.old_target)} → {side(e.new, e.new_target)}
			{!e.new && !e.new_target ? <span className="state hue-cancelled"> deleted</span> : null}
			{!e.old && !e.old_target ? <span className="state hue-completed"> created</span> : null}
		</span>
	);
}

/** Reflog shows what happened to one ref, newest first. It is there for deleted refs too. */
function Reflog({
	place,
	name,
	rules,
	onMove,
	onClose,
}: {
	place: Place;
	name: string;
	rules: readonly Rule[] | undefined;
	onMove: (name: string, old: string) => void;
	onClose: () => void;
}) {
	const { ns, repo } = place;
	const { times } = useSettings();
	const principal = useSession().principal;
	const queries = useQueryClient();
	const ref = useQuery({
		queryKey: ["ref", ns, repo, place.tag, name],
		queryFn: async () => {
			const page = await call(
				api.POST("/v1/repos/{repo}/refs:get", {
					params: { path: { repo }, query: tagged(place) },
					body: { names: [name] },
				}),
			);
			const found = page.refs?.[0];
			return found?.id || found?.target ? found : null;
		},
	});
	const [at, setAt] = useState("");
	const [asked, ask] = useState("");
	const when = asked === "" ? {} : /^\d+$/.test(asked) ? { n: Number(asked) } : { time: asked };
	const log = useInfiniteQuery({
		queryKey: ["reflog", ns, repo, place.tag, name, asked],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/repos/{repo}/reflog", {
					params: {
						path: { repo },
						query: { ...tagged(place), name, limit: 100, ...(pageParam ? { cursor: pageParam } : {}), ...when },
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
	});
	const entries = log.data?.pages.flatMap((p) => p.entries ?? []) ?? [];
	const now = ref.data;
	const last = now === null && asked === "" ? entries[0]?.old : undefined;
	const [back, setBack] = useState(false);
	const [remove, setRemove] = useState(false);
	const change = async (body: Schemas["RefChange"], id: string) => {
		await call(
			api.POST("/v1/repos/{repo}/refs", {
				params: { path: { repo }, query: tagged(place) },
				body: { changes: [body], request_id: id },
			}),
		);
		queries.invalidateQueries();
	};
	const id = useRef(newRequestId());
	return (
		<Panel
			title={<span className="mono wrap">{visible(name)}</span>}
			side={
				<button type="button" className="quiet" onClick={onClose} aria-label="Close this log">
					×
				</button>
			}
		>
			<div className="actions">
				{now ? (
					<>
						{now.target ? <span className="mono">→ {now.target}</span> : <Sha id={now.id} />}
						<Button needs="ref:write" disabled={!now.id || !!now.target} onClick={() => onMove(name, now.id ?? "")}>
							Move…
						</Button>
						<Button needs="ref:write" kind="danger" disabled={!now.id || !!now.target} onClick={() => setRemove(true)}>
							Delete…
						</Button>
					</>
				) : now === null ? (
					<span className="state hue-cancelled">⊘ this ref is not there (any more)</span>
				) : null}
				{last ? (
					<Button needs="ref:write" onClick={() => setBack(true)}>
						Undelete…
					</Button>
				) : null}
			</div>
			{ref.error ? <Failed error={asApiError(ref.error)} what="The ref" /> : null}
			<form
				className="field-row find"
				onSubmit={(e) => {
					e.preventDefault();
					const typed = at.trim().replace(/^@?\{(.*)\}$/, "$1");
					const time = parseTime(times === "utc" && !/(z|[+-]\d\d:?\d\d)$/i.test(typed) ? `${typed}Z` : typed);
					if (typed === "" || /^\d+$/.test(typed)) ask(typed);
					else if (time !== undefined) ask(new Date(time).toISOString());
				}}
			>
				<label className="grow">
					<span className="sr">Only the record of this number, or of this time</span>
					<input
						className="mono"
						value={at}
						onChange={(e) => setAt(e.target.value)}
						placeholder={`@{3}, or ${clock(Date.now(), times).slice(0, 16)}`}
						aria-invalid={at.trim() !== "" && !/^@?\{?\d+\}?$/.test(at.trim()) && parseTime(at) === undefined}
						spellCheck={false}
						autoComplete="off"
					/>
				</label>
				<button type="submit" className="plain">
					At
				</button>
				{asked ? (
					<button
						type="button"
						className="plain"
						onClick={() => {
							ask("");
							setAt("");
						}}
					>
						All
					</button>
				) : null}
			</form>
			<ReadFailed query={log} what="The log" />
			{log.isPending ? <Loading what="the log" /> : null}
			{log.data && entries.length === 0 ? (
				<p className="dim">There is no record{asked ? " of then" : " of this ref"}.</p>
			) : null}
			{entries.length > 0 ? (
				<Table
					label={`Log of ${visible(name)}`}
					columns={[
						{ id: "n", name: "@", look: "mono", cell: (_, i) => (asked ? "" : `{${i}}`) },
						{ id: "when", name: "moved", look: "nobreak", cell: (e) => <When at={e.time} /> },
						{ id: "change", name: "FROM → TO", cell: (e) => <Change e={e} /> },
						{ id: "by", name: "by", cell: (e) => e.principal },
						{ id: "how", name: "how", cell: (e) => <How ns={ns} e={e} /> },
						{ id: "message", name: "message", look: "wrap", cell: (e) => e.message },
					]}
					rows={entries}
					id={(e) => `${e.index} ${e.rev}`}
				/>
			) : null}
			{log.hasNextPage ? (
				<button type="button" className="plain" disabled={log.isFetchingNextPage} onClick={() => log.fetchNextPage()}>
					Older
				</button>
			) : null}
			{back && last ? (
				<Confirm
					title={`Bring ${name} back?`}
					what={
						<>
							<p>
								The ref is made again where it pointed to last, <span className="mono">{last}</span>, if it is still not
								there. Objects of deleted refs are kept for 7 days.
							</p>
							<Objections rules={rules} name={name} move="create" principal={principal} />
						</>
					}
					needs="ref:write"
					verb="Undelete"
					onClose={() => setBack(false)}
					onConfirm={() => change({ kind: "create", name, new: last, message: "undeleted in the UI" }, id.current)}
				/>
			) : null}
			{remove && now?.id ? (
				<Confirm
					title={`Delete ${name}?`}
					what={
						<>
							<p>
								The ref is removed if it still points to <span className="mono">{now.id}</span>. Its log stays.
							</p>
							<Objections rules={rules} name={name} move="delete" principal={principal} />
						</>
					}
					lost="It can be brought back from its log for 7 days; after that its objects may be gone."
					needs="ref:write"
					verb="Delete"
					onClose={() => setRemove(false)}
					onConfirm={() => change({ kind: "delete", name, old: now.id ?? "" }, id.current)}
				/>
			) : null}
		</Panel>
	);
}

/** Objections names the rules that would refuse a move, before it is sent. */
function Objections({
	rules,
	name,
	move,
	principal,
}: {
	rules: readonly Rule[] | undefined;
	name: string;
	move: Move;
	principal: string;
}) {
	const all = objections(rules, name, move, principal);
	if (all.length === 0) return null;
	return (
		<ul className="warn plain-list">
			{all.map(({ number, rule, sure }) => (
				<li key={number}>
					{sure ? "✕ Rule" : "⚠ Rule"} {number} (<span className="mono">{rule.refs}</span>: {words(rule)}){" "}
					{sure ? "refuses this." : "refuses this if the new commit does not follow from the old one."}
				</li>
			))}
		</ul>
	);
}

/** MoveRef moves a ref from the value that it is known to have, or makes one. */
function MoveRef({
	place,
	rules,
	first,
	onClose,
}: {
	place: Place;
	rules: readonly Rule[] | undefined;
	first: { name: string; old: string };
	onClose: () => void;
}) {
	const principal = useSession().principal;
	const queries = useQueryClient();
	const creating = first.old === "";
	const [name, setName] = useState(first.name);
	const [old, setOld] = useState(first.old);
	const [to, setTo] = useState("");
	const [message, setMessage] = useState("");
	const sent = useRef({ what: "", id: "" });
	const field = (label: string, value: string, set: (v: string) => void, bad: boolean) => (
		<label className="field">
			{label}
			<input
				className="mono"
				value={value}
				onChange={(e) => set(e.target.value.trim())}
				spellCheck={false}
				autoComplete="off"
				aria-invalid={bad}
			/>
		</label>
	);
	return (
		<Confirm
			title={creating ? "Create a ref" : `Move ${name}`}
			what={
				<p>
					{creating
						? "The ref is made if it is not there yet."
						: "The ref moves if it still points to the old value. The change stands in its log, with your name."}
				</p>
			}
			needs="ref:write"
			verb={creating ? "Create" : "Move"}
			blocked={!isObject(to) || (!creating && !isObject(old)) || name === "refs/heads/"}
			onClose={onClose}
			onConfirm={async () => {
				const what = [name, old, to, message].join(" ");
				if (sent.current.what !== what) sent.current = { what, id: newRequestId() };
				await call(
					api.POST("/v1/repos/{repo}/refs", {
						params: { path: { repo: place.repo }, query: tagged(place) },
						body: {
							changes: [
								creating
									? { kind: "create", name, new: to, ...(message ? { message } : {}) }
									: { kind: "update", name, old, new: to, ...(message ? { message } : {}) },
							],
							request_id: sent.current.id,
						},
					}),
				);
				queries.invalidateQueries();
				toast(creating ? `Created ${name}` : `Moved ${name}`);
			}}
		>
			{creating ? field("Name", name, setName, false) : field("Old value", old, setOld, old !== "" && !isObject(old))}
			{field("New value: the id of an object", to, setTo, to !== "" && !isObject(to))}
			<label className="field">
				Message, for its log
				<input value={message} onChange={(e) => setMessage(e.target.value)} maxLength={1024} autoComplete="off" />
			</label>
			<Objections rules={rules} name={name} move={creating ? "create" : "update"} principal={principal} />
		</Confirm>
	);
}

/** Activity is the logs of all refs together, newest first. */
function Activity({ place }: { place: Place }) {
	const { ns, repo, tag } = place;
	const navigate = useNavigate();
	const list = useInfiniteQuery({
		queryKey: ["activity", ns, repo, tag],
		initialPageParam: "",
		queryFn: ({ pageParam }) =>
			call(
				api.GET("/v1/repos/{repo}/activity", {
					params: {
						path: { repo },
						query: { ...tagged(place), limit: 100, ...(pageParam ? { cursor: pageParam } : {}) },
					},
				}),
			),
		getNextPageParam: (last) => last.cursor || undefined,
	});
	const rows = useMemo(() => list.data?.pages.flatMap((p) => p.moves ?? []) ?? [], [list.data]);
	const columns: Column<Entry>[] = [
		{ id: "name", name: "ref", grow: true, cell: (e) => <span className="mono">{visible(e.name ?? "")}</span> },
		{ id: "when", name: "moved", cell: (e) => <When at={e.time} /> },
		{ id: "change", name: "FROM → TO", cell: (e) => <Change e={e} /> },
		{ id: "by", name: "by", from: 600, cell: (e) => e.principal },
		{ id: "how", name: "how", from: 900, cell: (e) => <How ns={ns} e={e} /> },
		{ id: "message", name: "message", from: 1200, cell: (e) => e.message },
	];
	return (
		<>
			<ReadFailed query={list} what="The activity" />
			{list.isPending ? <Loading what="the activity" /> : null}
			{list.data?.pages.some((p) => p.partial) ? (
				<p className="warn">
					⚠ There are more refs than one request looks at: only those that come first by name are told of.
				</p>
			) : null}
			{list.data ? (
				<Grid
					label={`Activity of ${repo}`}
					columns={columns}
					rows={rows}
					id={(e) => `${e.index} ${e.rev} ${e.name}`}
					onOpen={(e) =>
						navigate({ to: "/$ns/repos/$repo", params: { ns, repo }, search: { ref: e.name ?? "", tag: place.tag } })
					}
					onEnd={() => list.hasNextPage && !list.isFetchingNextPage && list.fetchNextPage()}
					empty={<Empty>Each move of a ref stands here, newest first.</Empty>}
				/>
			) : null}
		</>
	);
}

function Rules({ found, onEdit }: { found: Repository | undefined; onEdit: () => void }) {
	const [name, setName] = useState("");
	if (!found) return <Loading what="the rules" />;
	const rules = found.config?.rules ?? [];
	const hit = new Set(rulesOf(rules, name).map((r) => r.number));
	return (
		<Panel
			title="Rules"
			side={
				<Button needs="ref:admin" onClick={onEdit}>
					Edit as JSON…
				</Button>
			}
		>
			{rules.length === 0 ? (
				<p className="dim">
					No rule protects a ref of this repository: everyone who may write may move, force and delete all of them.
				</p>
			) : (
				<>
					<label className="field">
						Which rules hold for this ref?
						<input
							className="mono"
							value={name}
							placeholder="refs/heads/main"
							onChange={(e) => setName(e.target.value.trim())}
							spellCheck={false}
							autoComplete="off"
						/>
					</label>
					{name ? (
						<p role="status">
							{hit.size === 0
								? "None."
								: `Rule${hit.size > 1 ? "s" : ""} ${[...hit].join(", ")}: all of them must agree.`}
						</p>
					) : null}
					<Table
						label="Rules"
						columns={[
							{ id: "n", name: "#", cell: (_, i) => i + 1 },
							{ id: "refs", name: "refs", look: "mono wrap", cell: (r) => r.refs },
							{ id: "deny", name: "denies", cell: (r) => r.deny?.join(", ") || "–" },
							{
								id: "only",
								name: "only by",
								cell: (r) => (r.only && r.only !== "any" ? `${r.only}${r.queue ? ` of ${r.queue}` : ""}` : "–"),
							},
							{ id: "except", name: "not for", cell: (r) => r.except?.join(", ") || "–" },
						]}
						rows={rules}
						id={(_, i) => i}
						rowProps={(_, i) => ({ "aria-selected": name ? hit.has(i + 1) : undefined })}
					/>
				</>
			)}
		</Panel>
	);
}

function RepoSettings({ found, onEdit }: { found: Repository | undefined; onEdit: () => void }) {
	if (!found) return <Loading what="the settings" />;
	const c = found.config ?? {};
	const unset = (v: number | undefined, show: (n: number) => string, without: string) =>
		v ? show(v) : <span className="dim">{without}</span>;
	return (
		<Panel
			title={`Settings, version ${c.version ?? 0}`}
			side={
				<Button needs="ref:admin" onClick={onEdit}>
					Edit as JSON…
				</Button>
			}
		>
			<Facts
				items={[
					["state", <RepoState key="s" state={c.state} />],
					[
						"default branch",
						<span key="b" className="mono">
							{found.default_branch || "detached"}
						</span>,
					],
					["log of a ref is kept", unset(c.reflog_days, (n) => `${n} d`, "90 d, the default")],
					["records of a ref", unset(c.reflog_max, count, "1,000, the default")],
					["size at most", unset(c.max_bytes, size, "10 GiB, the default")],
					["a push at most", unset(c.max_push, size, "512 MiB, the default")],
					[
						"hidden refs",
						c.hide?.length ? (
							<span key="h" className="mono">
								{c.hide.join(" ")}
							</span>
						) : (
							"none"
						),
					],
					["created", <When key="c" at={found.created_at} full />],
					["by", found.created_by ?? "–"],
					[
						"id",
						<span key="i" className="mono">
							{found.id}
						</span>,
					],
					...(found.tag ? ([["tag", found.tag]] as [string, string][]) : []),
				]}
			/>
		</Panel>
	);
}
