import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { api, call, gone, newRequestId } from "../api/client";
import { asApiError } from "../api/errors";
import { curl } from "../curl";
import { clock, count, many, parseTime, type Times, tail, visible } from "../format";
import { bytesOf } from "../key-text";
import { useKeys } from "../keys";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { serverNow, useNow } from "../now";
import { Button, Copy, copyText, Empty, Failed, Loading, Page, Since, State } from "../parts/basic";
import { BulkDialog } from "../parts/bulk-dialog";
import { Head } from "../parts/bytes";
import { Confirm } from "../parts/dialog";
import { type Column, Grid } from "../parts/grid";
import { Menu } from "../parts/menu";
import { toast } from "../parts/toast";
import type { Search } from "../router";
import { maxViews, setSettings, settings, useSettings } from "../settings";
import { scopes } from "../tasks/actions";
import { Detail } from "../tasks/detail";
import { each, mostEach, told } from "../tasks/each";
import { bulkFilter, type Filter, inWords, matches, parse, type Task } from "../tasks/filter";
import { FilterBar } from "../tasks/filter-bar";
import { pageLength, type Row, TaskList } from "../tasks/list";
import { triesOf, whyOf } from "../tasks/words";

/** Rows that are seen are read again each of these milliseconds, and what is newer is looked for. */
const every = 2500;
const peekEvery = 6000;
/** First bytes of each payload that a row shows. */
const head = 160;

/** queryOf is a filter as GET /v1/tasks takes it. at is where the list begins, in place of its end. */
function queryOf(ns: string, f: Filter, order: "asc" | "desc", at: string | undefined) {
	const { labels, ...rest } = f;
	const label = Object.entries(labels).map(([k, v]) => `${k}=${v}`);
	const begin = at === undefined ? {} : order === "desc" ? { to: earlier(at, f.to) } : { from: later(at, f.from) };
	return { ns, limit: pageLength, head, order, ...rest, ...begin, ...(label.length > 0 ? { label } : {}) };
}

const earlier = (a: string, b: string | undefined) => (b !== undefined && b < a ? b : a);
const later = (a: string, b: string | undefined) => (b !== undefined && b > a ? b : a);

/** useTaskList is the list of an address. A new filter, order or time begins a new one; so does `again`. */
function useTaskList(
	ns: string,
	filter: Filter | undefined,
	order: "asc" | "desc",
	at: string | undefined,
	again: number,
) {
	const key = JSON.stringify([ns, filter, order, at]);
	// The key stands for the filter; a new number of `again` begins another list.
	const list = useMemo(
		() =>
			new TaskList(
				(cursor) =>
					call(
						api.GET("/v1/tasks", {
							params: { query: { ...queryOf(ns, filter!, order, at), ...(cursor ? { cursor } : {}) } },
						}),
					),
				async (ids) =>
					(await call(api.POST("/v1/tasks:get", { params: { query: { ns } }, body: { ids, head } }))).tasks ?? [],
			),
		[key, again],
	);
	useSyncExternalStore(list.listen, list.state);
	const status = useLiveStatus(ns);
	const on = filter !== undefined;
	const peeks = order === "desc" && at === undefined && !filter?.to;
	useEffect(() => {
		if (on) void list.more();
	}, [list, on]);
	useEffect(() => {
		if (!on || status === "paused") return;
		const refresh = setInterval(() => !document.hidden && void list.refresh(), every);
		const peek = peeks ? setInterval(() => !document.hidden && void list.peek(), peekEvery) : undefined;
		return () => {
			clearInterval(refresh);
			clearInterval(peek);
		};
	}, [list, on, peeks, status]);
	return list;
}

export function Tasks() {
	const ns = useNamespace();
	const search = useSearch({ strict: false }) as Search;
	const navigate = useNavigate();
	const queries = useQueryClient();
	const { times } = useSettings();
	const q = search.q ?? "";
	const order = search.order === "asc" ? "asc" : "desc";
	const at = parseTime(search.at) === undefined ? undefined : search.at;
	const parsed = useMemo(() => parse(q, serverNow(), times === "utc"), [q, times]);
	const filter = parsed.fault || parsed.id ? undefined : parsed.filter;
	const [again, setAgain] = useState(0);
	const list = useTaskList(ns, filter, order, at, again);
	const [marked, setMarked] = useState<Set<string>>(new Set());
	const field = useRef<HTMLInputElement>(null);
	const begin = useCallback(() => setAgain((n) => n + 1), []);
	// Nothing moves under the cursor where there is nothing yet.
	useEffect(() => {
		if (list.newer > 0 && list.rows.length === 0) begin();
	}, [list.newer, list.rows.length, begin]);
	const go = (change: Search) =>
		navigate({ to: "/$ns/tasks", params: { ns }, search: { ...search, ...change } as Search });
	const { id } = parsed;
	useEffect(() => {
		if (id) navigate({ to: "/$ns/tasks/$id", params: { ns, id }, replace: true });
	}, [id, ns, navigate]);
	useKeys({ "/": () => field.current?.focus() });
	const tasks = useMemo(() => list.rows.flatMap((r) => r.task ?? []), [list.rows]);
	const after = () => {
		void list.refresh();
		queries.invalidateQueries();
	};
	const operate = useSelection(ns, marked, setMarked, list, after);
	const columns = useMemo(() => columnsOf(ns, filter), [ns, filter]);
	return (
		<Page
			title="Tasks"
			name="Tasks"
			actions={
				<>
					<Views href={`/${ns}/tasks${q ? `?q=${encodeURIComponent(q)}` : ""}`} name={q} />
					<Menu
						label="⋯"
						title="More"
						items={[
							{
								name: order === "desc" ? "Oldest first" : "Newest first",
								onPick: () => go({ order: order === "desc" ? "asc" : "" }),
							},
							{
								name: "Copy as curl",
								onPick: () => copyText(curlOf(ns, filter, order)).then(() => toast("Command copied")),
							},
							{ name: "Copy the address", onPick: () => copyText(location.href).then(() => toast("Address copied")) },
						]}
					/>
				</>
			}
		>
			<FilterBar
				applied={q}
				tasks={tasks}
				field={field}
				onApply={(text, p) => {
					setMarked(new Set());
					if (p.id) navigate({ to: "/$ns/tasks/$id", params: { ns, id: p.id } });
					else if (text === q) begin();
					else go({ q: text, at: "" });
				}}
			/>
			<div className="selection">
				{marked.size > 0 ? (
					operate.bar
				) : parsed.fault ? null : (
					<Looked list={list} order={order} at={at} onNewest={begin} onJump={(to) => go({ at: to })} />
				)}
				<AllThatMatch filter={filter} />
			</div>
			{list.error === undefined ? null : (
				<Failed error={asApiError(list.error)} retry={() => void list.more()} what="The list" />
			)}
			<Grid<Row>
				label="Tasks"
				columns={columns}
				rows={list.rows}
				id={rowId}
				onOpen={(r) => navigate({ to: "/$ns/tasks/$id", params: { ns, id: r.id } })}
				href={(r) => `/ui/${encodeURIComponent(ns)}/tasks/${r.id}`}
				marked={marked}
				onMark={setMarked}
				stale={(r) => r.gone || (!!r.task && !!filter && !matches(filter, r.task))}
				detail={(r) => (r.task ? <Detail ns={ns} task={r.task} gone={r.gone} /> : null)}
				keys={{ y: (r) => copyText(r.id).then(() => toast("Id copied")) }}
				onEnd={list.onEnd}
				onRange={list.onRange}
				empty={
					list.busy || (list.inspected === 0 && list.open && !parsed.fault && list.error === undefined) ? (
						<Loading what="tasks" />
					) : filter && list.error === undefined ? (
						<None filter={filter} q={q} ns={ns} list={list} order={order} />
					) : null
				}
			/>
			{operate.dialog}
		</Page>
	);
}

const rowId = (r: Row) => r.id;

function curlOf(ns: string, filter: Filter | undefined, order: "asc" | "desc"): string {
	const p = new URLSearchParams();
	for (const [k, v] of Object.entries(queryOf(ns, filter ?? { labels: {} }, order, undefined)))
		for (const one of [v].flat()) p.append(k, String(one));
	return curl("GET", `/v1/tasks?${p}`);
}

/** WhyCell runs with the clock. */
function WhyCell({ task }: { task: Task }) {
	const text = visible(whyOf(task, useNow()));
	return <span title={text}>{text}</span>;
}

function columnsOf(ns: string, filter: Filter | undefined): Column<Row>[] {
	const cell = (f: (t: Task) => ReactNode) => (r: Row) => (r.task ? f(r.task) : <span className="dim">…</span>);
	const columns: Column<Row>[] = [
		{
			id: "id",
			name: "id",
			cell: (r) => (
				<Link to="/$ns/tasks/$id" params={{ ns, id: r.id }} className="mono" title={r.id} tabIndex={-1}>
					{tail(r.id, 6)}
				</Link>
			),
		},
		{ id: "kind", name: "kind", cell: cell((t) => t.kind) },
	];
	if (!filter?.queue)
		columns.push({ id: "queue", name: "queue", from: 600, cell: cell((t) => (t.queue === t.kind ? "" : t.queue)) });
	columns.push(
		{
			id: "state",
			name: "state",
			cell: (r) => (r.gone ? <span className="dim">deleted</span> : r.task ? <State state={r.task.state} /> : ""),
		},
		{ id: "why", name: "why, or error", grow: true, cell: cell((t) => <WhyCell task={t} />) },
		{
			id: "try",
			name: "try",
			num: true,
			from: 600,
			cell: cell((t) => <span title="failures, with the try that runs, of those it may have">{triesOf(t)}</span>),
		},
		{
			id: "worker",
			name: "worker",
			from: 900,
			cell: cell((t) => (t.worker ? <span title={visible(t.worker)}>{visible(t.worker)}</span> : "–")),
		},
		{ id: "age", name: "age", num: true, cell: cell((t) => <Since at={t.created_at} />) },
		{
			id: "head",
			name: "first bytes",
			grow: true,
			from: 1200,
			cell: cell((t) => <Head bytes={bytesOf(t.head, t.head_base64)} size={t.payload_size} />),
		},
	);
	return columns;
}

/** farOf says how far a list that goes on has looked. */
function farOf(list: TaskList, order: "asc" | "desc", times: Times): string {
	const t = parseTime(list.reached);
	return t === undefined ? "" : ` ${order === "desc" ? "back" : "up"} to ${clock(t, times).replace(/\.\d+/, "")}`;
}

/** Looked says what the list holds and how far it looked: nothing is counted that was not looked at. */
function Looked({
	list,
	order,
	at,
	onNewest,
	onJump,
}: {
	list: TaskList;
	order: "asc" | "desc";
	at: string | undefined;
	onNewest: () => void;
	onJump: (at: string) => void;
}) {
	const { times } = useSettings();
	const far = farOf(list, order, times);
	const found = list.rows.length;
	return (
		<>
			{list.newer > 0 && found > 0 ? (
				<Button kind="main" onClick={onNewest}>
					▲ {count(list.newer)}
					{list.newerMore ? "+" : ""} newer, show
				</Button>
			) : null}
			<span className="dim" role="status">
				{list.busy && found === 0
					? ""
					: list.inspected > found + pageLength || list.thin
						? `looked at ${count(list.inspected)}${far}, found ${count(found)}${list.open ? "" : ", that is all"}`
						: list.open
							? `${count(found)} shown so far${far}`
							: many(found, "task")}
				{order === "asc" ? ", oldest first" : ""}
			</span>
			{list.open && list.thin && !list.busy ? <Button onClick={() => void list.more()}>Keep looking</Button> : null}
			{list.busy && found > 0 ? <span className="dim">looking …</span> : null}
			<Jump at={at} order={order} onJump={onJump} />
		</>
	);
}

/** Jump begins the list at a time. */
function Jump({ at, order, onJump }: { at: string | undefined; order: "asc" | "desc"; onJump: (at: string) => void }) {
	const { times } = useSettings();
	const t = parseTime(at);
	const zone = times === "utc" || t === undefined ? 0 : new Date(t).getTimezoneOffset() * 60_000;
	const value = t === undefined ? "" : new Date(t - zone).toISOString().slice(0, 16);
	const jump = (text: string) => {
		const to = Date.parse(times === "utc" ? `${text}Z` : text);
		onJump(Number.isNaN(to) ? "" : new Date(to).toISOString());
	};
	return (
		<label className="check dim push">
			{order === "desc" ? "created before" : "created from"}
			<input
				key={value}
				type="datetime-local"
				aria-label={`Jump to a time, ${times === "utc" ? "UTC" : "local"}`}
				defaultValue={value}
				onBlur={(e) => e.target.value !== value && jump(e.target.value)}
				onKeyDown={(e) => e.key === "Enter" && jump(e.currentTarget.value)}
			/>
			{at ? (
				<Button kind="quiet" onClick={() => onJump("")}>
					{order === "desc" ? "to the newest" : "to the oldest"}
				</Button>
			) : null}
		</label>
	);
}

/** None says what was asked for, and what would widen it. */
function None({
	filter,
	q,
	ns,
	list,
	order,
}: {
	filter: Filter;
	q: string;
	ns: string;
	list: TaskList;
	order: "asc" | "desc";
}) {
	const { times } = useSettings();
	const words = parse(q, serverNow()).words;
	if (q === "")
		return (
			<Empty command={`millrace task create mail '{"to":"ada"}'`}>
				There are no tasks in namespace {ns}. A queue appears with its first task.
			</Empty>
		);
	return (
		<div className="empty">
			<p>
				{list.open
					? `No ${inWords(filter)} among the ${count(list.inspected)} that were looked at${farOf(list, order, times)}.`
					: `There are no ${inWords(filter)}.`}
			</p>
			{list.open ? <Button onClick={() => void list.more()}>Keep looking</Button> : null}{" "}
			{words.map((w) => {
				const without = (q.slice(0, w.start) + q.slice(w.end)).replaceAll(/\s+/g, " ").trim();
				return (
					<Link
						key={w.start}
						to="/$ns/tasks"
						params={{ ns }}
						search={without ? { q: without } : {}}
						className="as-button"
					>
						without <span className="mono">{q.slice(w.start, w.end)}</span>
					</Link>
				);
			})}
		</div>
	);
}

/** Views are filters that this browser keeps. */
function Views({ href, name }: { href: string; name: string }) {
	const { views } = useSettings();
	const navigate = useNavigate();
	const here = views.some((v) => v.href === href);
	return (
		<Menu
			label="Views ▾"
			title="Saved views"
			items={[
				...views.map((v) => ({ name: v.name, onPick: () => navigate({ href: v.href } as never) })),
				here
					? {
							name: "Forget this view",
							onPick: () => setSettings({ views: settings().views.filter((v) => v.href !== href) }),
						}
					: {
							name: name ? `Save ${name}` : "Save a filter here",
							disabled: !name || views.length >= maxViews,
							onPick: () => setSettings({ views: [...settings().views, { name, href }] }),
						},
			]}
		/>
	);
}

type Bulk = "retry" | "cancel" | "delete" | "reprioritise";

/** AllThatMatch begins a job of the server about all tasks of the filter, after a dry run. */
function AllThatMatch({ filter }: { filter: Filter | undefined }) {
	const [open, setOpen] = useState<Bulk>();
	const titles: Record<Bulk, string> = {
		retry: "Retry",
		cancel: "Cancel",
		delete: "Delete",
		reprioritise: "Prioritise",
	};
	const needs: Record<Bulk, string> = {
		retry: scopes.operate,
		cancel: scopes.operate,
		delete: scopes.delete,
		reprioritise: scopes.operate,
	};
	return (
		<>
			<Menu
				label="All that match ▾"
				title="Act on all tasks that match the filter"
				items={(Object.keys(titles) as Bulk[]).map((b) => ({
					name: `${titles[b]}…`,
					needs: needs[b],
					danger: b === "delete",
					disabled: !filter,
					onPick: () => setOpen(b),
				}))}
			/>
			{open && filter ? (
				<BulkDialog
					action={open}
					filter={bulkFilter(filter)}
					title={`${titles[open]} all ${inWords(filter)}`}
					onClose={() => setOpen(undefined)}
				/>
			) : null}
		</>
	);
}

/** useSelection is what can be done to the rows that are marked: their bar, and the dialog that is open. */
function useSelection(
	ns: string,
	marked: Set<string>,
	setMarked: (ids: Set<string>) => void,
	list: TaskList,
	after: () => void,
): { bar: ReactNode; dialog: ReactNode } {
	const [open, setOpen] = useState<"cancel" | "delete">();
	const [busy, setBusy] = useState(false);
	const under = useRef(false);
	const ids = [...marked];
	const tooMany = ids.length > mostEach;
	const run = async (
		verb: string,
		which: string[],
		one: (id: string, request: string) => Promise<unknown>,
		keep?: Map<string, string>,
	) => {
		if (under.current) return; // a double click sends each once
		under.current = true;
		setBusy(true);
		const requests = keep ?? new Map(which.map((id) => [id, newRequestId()]));
		try {
			const o = await each(which, (id) => one(id, requests.get(id)!));
			const bad = o.refused.size > 0 || o.unknown.length > 0;
			toast(told(o, verb), {
				bad,
				...(o.unknown.length > 0
					? { action: { name: "Ask again", run: () => void run(verb, o.unknown, one, requests) } }
					: {}),
			});
			if (!bad) setMarked(new Set());
		} finally {
			under.current = false;
			setBusy(false);
			after();
		}
	};
	const retry = (id: string, request_id: string) =>
		call(api.POST("/v1/tasks/{id}/retry", { params: { path: { id }, query: { ns } }, body: { request_id } }));
	const states = new Map(list.rows.map((r) => [r.id, r.task?.state]));
	const running = ids.filter((id) => states.get(id) === "running").length;
	const more = tooMany ? `at most ${mostEach} at once; more are a job: All that match` : undefined;
	const bar = (
		<>
			<strong role="status">{count(ids.length)} selected</strong>
			<Button
				needs={scopes.operate}
				disabled={busy || tooMany}
				title={more}
				onClick={() => void run("retried", ids, retry)}
			>
				Retry
			</Button>
			<Button needs={scopes.cancel} disabled={busy || tooMany} title={more} onClick={() => setOpen("cancel")}>
				Cancel…
			</Button>
			<Button
				needs={scopes.delete}
				kind="danger"
				disabled={busy || tooMany}
				title={more}
				onClick={() => setOpen("delete")}
			>
				Delete…
			</Button>
			<Copy text={() => ids.join("\n")}>Copy ids</Copy>
			<Button kind="quiet" onClick={() => setMarked(new Set())}>
				Clear
			</Button>
		</>
	);
	const close = () => setOpen(undefined);
	let dialog: ReactNode = null;
	if (open === "cancel")
		dialog = (
			<Confirm
				title={`Cancel ${many(ids.length, "task")}?`}
				needs={scopes.cancel}
				verb="Cancel them"
				reason
				what={
					<p>
						Tasks that wait are cancelled at once.
						{running > 0 ? ` The workers of ${running} that run are told to stop.` : ""} Those that have ended are
						refused.
					</p>
				}
				lost={running > 0 ? "What workers did so far outside of Millrace is not undone." : undefined}
				onClose={close}
				onConfirm={(reason) =>
					run("cancelled or told to stop", ids, (id, request_id) =>
						call(
							api.POST("/v1/tasks/{id}/cancel", {
								params: { path: { id }, query: { ns } },
								body: { request_id, ...(reason ? { reason } : {}) },
							}),
						),
					)
				}
			/>
		);
	else if (open === "delete")
		dialog = (
			<Confirm
				title={`Delete ${many(ids.length, "task")}?`}
				needs={scopes.delete}
				verb="Delete them"
				what={
					<p>
						Tasks that have ended go with their payloads, results, attempts and logs. Those that have not are refused.
					</p>
				}
				lost="This cannot be undone."
				onClose={close}
				onConfirm={() =>
					run("deleted", ids, (id) => gone(api.DELETE("/v1/tasks/{id}", { params: { path: { id }, query: { ns } } })))
				}
			/>
		);
	return { bar, dialog };
}
