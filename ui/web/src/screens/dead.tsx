import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useAddress } from "../address";
import { api, call, raw, type Schemas } from "../api/client";
import { count, many, visible } from "../format";
import { useRows } from "../live/live";
import { useNamespace } from "../namespace";
import {
	Button,
	Copy,
	Empty,
	Facts,
	Id,
	Loading,
	Page,
	ReadFailed,
	Segments,
	Spark,
	State,
	When,
} from "../parts/basic";
import { filterText, type TaskFilter } from "../parts/bulk";
import { BulkDialog } from "../parts/bulk-dialog";
import { Bytes, indented, textOf } from "../parts/bytes";
import { Diff } from "../parts/diff-view";
import { by, type Group, grouped } from "../parts/errors";
import { type Column, Grid } from "../parts/grid";
import { operate } from "../parts/queue-acts";

type Task = Schemas["Task"];
type QueueStats = Schemas["QueueStats"];

const spans = { "1h": "1h", "24h": "24h", "7d": "168h", all: "" } as const;

/** Dead shows the dead tasks by what killed them, and takes them back by group. */
export function Dead() {
	const ns = useNamespace();
	const queues = useRows<QueueStats>(ns, "queues");
	const dead = (queues ?? []).filter((q) => (q.dead ?? 0) > 0);
	const n = dead.reduce((sum, q) => sum + (q.dead ?? 0), 0);
	const { queue } = useSearch({ strict: false });
	const [redrive, setRedrive] = useState(false);
	return (
		<Page
			title={
				<>
					Dead letters
					{queues ? (
						<span className="dim">
							{" "}
							{count(n)} in {many(dead.length, "queue")}
						</span>
					) : null}
				</>
			}
			name="Dead letters"
			actions={
				<Button needs={operate} disabled={n === 0} onClick={() => setRedrive(true)}>
					Redrive {queue ? `all of ${queue}` : "all"}…
				</Button>
			}
		>
			{dead.length > 0 ? <Where queues={dead} chosen={queue} /> : null}
			<ErrorGroups queue={queue} />
			{redrive ? (
				<BulkDialog
					action="redrive"
					title={`Redrive the dead of ${queue ?? "all queues"}`}
					filter={queue ? { queue } : {}}
					onClose={() => setRedrive(false)}
				/>
			) : null}
		</Page>
	);
}

/** Where links the queues that have dead tasks: each shows its groups only. */
function Where({ queues, chosen }: { queues: QueueStats[]; chosen: string | undefined }) {
	const ns = useNamespace();
	return (
		<p className="selection">
			<span className="dim">in</span>
			{[...queues]
				.sort((a, b) => (b.dead ?? 0) - (a.dead ?? 0))
				.slice(0, 20)
				.map((q) => (
					<Link
						key={q.queue}
						className="as-button"
						to="/$ns/dead"
						params={{ ns }}
						search={(s: object) => ({ ...s, queue: q.queue === chosen ? undefined : q.queue }) as never}
						aria-current={q.queue === chosen ? "true" : undefined}
					>
						{q.queue} {count(q.dead)}
						{q.queue === chosen ? " ×" : ""}
					</Link>
				))}
		</p>
	);
}

const key = (g: Group) => g.key;

/** ErrorGroups lists errors that are alike, of one queue or of all. */
export function ErrorGroups({ queue }: { queue?: string | undefined }) {
	const ns = useNamespace();
	const set = useAddress();
	const search = useSearch({ strict: false });
	const group = by.find((b) => b === search.group) ?? "error";
	const span = (Object.keys(spans) as (keyof typeof spans)[]).find((s) => s === search.span) ?? "24h";
	const kind = search.kind;
	const [dialog, setDialog] = useState<{ group: Group; action: "redrive" | "delete" }>();
	const query = useQuery({
		queryKey: [ns, "errors", queue ?? "", kind ?? "", span],
		queryFn: () =>
			call(
				api.GET("/v1/errors", {
					params: {
						query: {
							...(queue ? { queue } : {}),
							...(kind ? { kind } : {}),
							...(spans[span] ? { span: spans[span] } : {}),
						},
					},
				}),
			),
		placeholderData: (before) => before,
		refetchInterval: 10_000,
	});
	const groups = useMemo(() => grouped(query.data?.errors ?? [], group), [query.data, group]);
	const columns: Column<Group>[] = [
		{
			id: "name",
			name: group,
			grow: true,
			cell: (g) => (
				<span title={visible(g.message)}>
					{group === "error" ? <span className="mono dim">{g.fingerprint?.slice(0, 4)} </span> : null}
					{visible(g.title)} {group === "error" ? null : <span className="dim">{visible(g.message)}</span>}
				</span>
			),
		},
		...(group === "kind"
			? []
			: [{ id: "kind", name: "kind", from: 600, cell: (g: Group) => g.kinds.join(" ") } as Column<Group>]),
		{
			id: "count",
			name: "errors",
			num: true,
			cell: (g) => <span title="errors of attempts, since the queue keeps them">{count(g.count)}</span>,
		},
		{
			id: "trend",
			name: "24 h",
			from: 900,
			cell: (g) => (
				<Spark
					values={g.trend}
					summary={`${many(
						g.trend.reduce((a, b) => a + b, 0),
						"error",
					)} in the last 24 hours`}
				/>
			),
		},
		{ id: "first", name: "first", num: true, from: 1200, cell: (g) => <When at={g.first} /> },
		{ id: "last", name: "last", num: true, cell: (g) => <When at={g.last} /> },
		...(queue || group === "queue"
			? []
			: [{ id: "queues", name: "queue", from: 600, cell: (g: Group) => g.queues.join(" ") } as Column<Group>]),
		{
			id: "redrive",
			name: <span className="sr">actions</span>,
			cell: (g) =>
				g.fingerprint === "other" ? null : (
					<Button kind="quiet" needs={operate} onClick={() => setDialog({ group: g, action: "redrive" })}>
						Redrive…
					</Button>
				),
		},
	];
	return (
		<>
			<div className="selection">
				<span className="dim">group by</span>
				<Segments
					label="Group by"
					items={by}
					now={group}
					onPick={(v) => set({ group: v === "error" ? undefined : v })}
				/>
				<span className="dim">seen within</span>
				<Segments
					label="Seen within"
					items={Object.keys(spans)}
					now={span}
					onPick={(v) => set({ span: v === "24h" ? undefined : v })}
				/>
				{kind ? (
					<button type="button" className="plain" onClick={() => set({ kind: undefined })}>
						kind {kind} ×
					</button>
				) : null}
			</div>
			{query.error ? (
				<ReadFailed query={query} what="The errors" />
			) : query.data ? (
				<>
					<Grid
						label="Errors"
						columns={columns}
						rows={groups}
						id={key}
						detail={(g) => <Detail group={g} onDelete={() => setDialog({ group: g, action: "delete" })} />}
						keys={{ R: (g) => setDialog({ group: g, action: "redrive" }) }}
						empty={
							<Empty command={queue ? `millrace queue errors ${queue}` : "millrace queue errors mail"}>
								No attempt failed{queue ? ` in ${queue}` : ""}
								{span === "all" ? "" : ` within ${span}`}. A task is dead when its attempts are used up.
							</Empty>
						}
					/>
					{query.data.partial ? (
						<p className="warn">There are more errors than there is room for groups: "other" counts the rest.</p>
					) : null}
				</>
			) : (
				<Loading what="the errors" />
			)}
			{dialog ? (
				<BulkDialog
					action={dialog.action}
					title={`${dialog.action === "redrive" ? "Redrive" : "Delete"} the dead: ${dialog.group.title.slice(0, 80)}`}
					filter={filtersOf(dialog.group)}
					onClose={() => setDialog(undefined)}
				/>
			) : null}
		</>
	);
}

/** filtersOf finds the dead tasks of a group. */
function filtersOf(g: Group): TaskFilter[] {
	return g.filters.map((f) => ({ ...f, state: "dead" as const }));
}

/** Detail shows tasks of a group: one in full, two side by side. */
function Detail({ group, onDelete }: { group: Group; onDelete: () => void }) {
	const ns = useNamespace();
	const ids = group.sample.slice(0, 5);
	const [shown, setShown] = useState<string>();
	const [other, setOther] = useState<string>();
	const query = useQuery({
		queryKey: [ns, "error sample", ids],
		queryFn: async () => (ids.length > 0 ? await call(api.POST("/v1/tasks:get", { body: { ids } })) : { tasks: [] }),
	});
	const filters = filtersOf(group);
	const tasks = (query.data?.tasks ?? []).filter((t) => t.id);
	const one = tasks.find((t) => t.id === shown) ?? tasks[0];
	const two = tasks.find((t) => t.id === other && t.id !== one?.id);
	return (
		<>
			<p className="wrap">
				<strong>{visible(group.title)}</strong> {group.title.includes(group.message) ? "" : visible(group.message)}
			</p>
			<div className="selection">
				{filters.length === 1 ? (
					<Link to="/$ns/tasks" params={{ ns }} search={{ q: filterText(filters[0]) }}>
						Its dead tasks
					</Link>
				) : null}
				<Copy text={() => filters.map(filterText).join("\n")}>copy filter</Copy>
				<Button kind="danger" needs="admin" onClick={onDelete} disabled={group.fingerprint === "other"}>
					Delete…
				</Button>
			</div>
			{query.error ? (
				<ReadFailed query={query} what="The sample" />
			) : !query.data ? (
				<Loading what="the sample" />
			) : tasks.length === 0 ? (
				<p className="dim">The tasks that had it last are gone.</p>
			) : (
				<>
					<div className="selection">
						<span className="dim">sample</span>
						<Segments
							label="Task"
							items={tasks.map((t) => t.id ?? "")}
							now={one?.id ?? ""}
							name={(i) => `…${i.slice(-6)}`}
							onPick={setShown}
						/>
						{tasks.length > 1 ? (
							<label>
								next to{" "}
								<select value={two?.id ?? ""} onChange={(e) => setOther(e.target.value)}>
									<option value="">none</option>
									{tasks
										.filter((t) => t.id !== one?.id)
										.map((t) => (
											<option key={t.id} value={t.id}>
												…{t.id?.slice(-6)}
											</option>
										))}
								</select>
							</label>
						) : null}
					</div>
					{one && two ? <SideBySide one={one} two={two} /> : one ? <One task={one} /> : null}
				</>
			)}
		</>
	);
}

function One({ task }: { task: Task }) {
	return (
		<div className="columns">
			<div>
				<TaskFacts task={task} />
				{task.error?.stack ? (
					<div className="bytes-body">
						<pre>{visible(task.error.stack)}</pre>
					</div>
				) : (
					<p className="dim">No stack was reported.</p>
				)}
			</div>
			<Bytes path={`/v1/tasks/${task.id}/payload`} name={`payload of ${task.id}`} />
		</div>
	);
}

function TaskFacts({ task }: { task: Task }) {
	const ns = useNamespace();
	return (
		<Facts
			items={[
				[
					"task",
					<Link key="id" to="/$ns/tasks/$id" params={{ ns, id: task.id ?? "" }}>
						<Id id={task.id} />
					</Link>,
				],
				["state", <State key="state" state={task.state} />],
				["queue", task.queue ?? "–"],
				["tries", `${count(task.attempt ?? 0)} of ${count(task.max_attempts)}`],
				["worker", task.worker || "–"],
				["ended", <When key="ended" at={task.finished_at} />],
				["error", [task.error?.code, task.error?.message].filter(Boolean).join(" ") || "–"],
			]}
		/>
	);
}

/** SideBySide shows in which lines two tasks of a group differ: their errors, and their payloads. */
function SideBySide({ one, two }: { one: Task; two: Task }) {
	return (
		<>
			<div className="columns">
				<TaskFacts task={one} />
				<TaskFacts task={two} />
			</div>
			<h3>Stack</h3>
			<Difference a={one.error?.stack ?? ""} b={two.error?.stack ?? ""} what="stacks" />
			<h3>Payload</h3>
			<Payloads a={one.id ?? ""} b={two.id ?? ""} />
		</>
	);
}

async function payloadText(id: string): Promise<string> {
	const got = await raw(`/v1/tasks/${id}/payload?max=65536`);
	const text = textOf(got.bytes, got.bytes.length >= got.size);
	return text === undefined ? "(not text)" : (indented(text) ?? text);
}

function Payloads({ a, b }: { a: string; b: string }) {
	const ns = useNamespace();
	const query = useQuery({
		queryKey: [ns, "payloads", a, b],
		queryFn: () => Promise.all([payloadText(a), payloadText(b)]),
	});
	if (query.error) return <ReadFailed query={query} what="The payloads" />;
	if (!query.data) return <Loading what="the payloads" />;
	return <Difference a={query.data[0]} b={query.data[1]} what="payloads" />;
}

function Difference({ a, b, what }: { a: string; b: string; what: string }) {
	if (a === b)
		return (
			<p className="dim">
				{a === "" ? `No ${what}.` : `The ${what} are the same (${many(a.split("\n").length, "line")}).`}
			</p>
		);
	return <Diff from={a} to={b} label={`What differs between the ${what}`} />;
}
