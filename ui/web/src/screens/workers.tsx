import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useAct } from "../act";
import { useAddress } from "../address";
import { api, call, type Schemas } from "../api/client";
import { many, parseTime, span, visible } from "../format";
import { useFigures } from "../live/figures";
import { useRows } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Button, Empty, Failed, Id, Loading, Meter, Page, ReadFailed, Since, When } from "../parts/basic";
import { type Column, Grid } from "../parts/grid";
import { operate } from "../parts/queue-acts";
import { Table } from "../parts/table";
import { type How, howOf, matches } from "../parts/worker";

type Worker = Schemas["Worker"];
type QueueStats = Schemas["QueueStats"];

const idOf = (w: Worker) => `${w.id}\n${w.host ?? ""}`;
const none = <span className="dim">–</span>;

function HowIs({ worker }: { worker: Worker }) {
	const now = useNow();
	const how = howOf(worker, now);
	const [glyph, hue]: [string, string] = (
		{
			takes: ["●", "ready"],
			full: ["▶", "running"],
			quiet: ["◌", "scheduled"],
			silent: ["⚠", "blocked"],
		} satisfies Record<How, [string, string]>
	)[how];
	return (
		<span className={`state hue-${hue}`}>
			<span aria-hidden="true">{glyph}</span> {how}
		</span>
	);
}

function Lease({ at }: { at: string | undefined }) {
	const now = useNow();
	const t = parseTime(at);
	return t === undefined ? (
		none
	) : (
		<span title="since the oldest attempt began that it runs">{span(Math.max(0, now - t))}</span>
	);
}

const few = (list: string[] | undefined, n: number) =>
	!list || list.length === 0 ? none : `${list.slice(0, n).join(" ")}${list.length > n ? ` +${list.length - n}` : ""}`;

const columns: Column<Worker>[] = [
	{ id: "id", name: "worker", grow: true, cell: (w) => <span title={visible(w.id ?? "")}>{visible(w.id ?? "")}</span> },
	{ id: "host", name: "host", from: 600, cell: (w) => w.host || none },
	{ id: "queues", name: "queues", cell: (w) => <span title={(w.queues ?? []).join(" ")}>{few(w.queues, 3)}</span> },
	{
		id: "slots",
		name: "slots",
		num: true,
		cell: (w) => (
			<Meter
				used={w.running ?? 0}
				all={w.slots}
				calm
				label={`${w.running ?? 0} of ${many(w.slots ?? 0, "slot")} in use`}
			/>
		),
	},
	{ id: "oldest", name: "oldest attempt", num: true, from: 900, cell: (w) => <Lease at={w.oldest_lease} /> },
	{ id: "seen", name: "heard of", num: true, from: 600, cell: (w) => <Since at={w.seen_at} /> },
	{ id: "sdk", name: "client", from: 1200, cell: (w) => w.sdk || none },
	{ id: "nodes", name: "nodes", from: 1200, cell: (w) => few(w.nodes, 3) },
	{ id: "how", name: "state", cell: (w) => <HowIs worker={w} /> },
];

const read = async () => (await call(api.GET("/v1/workers"))).workers ?? [];

/** Workers shows who takes tasks, how busy they are, and what each has in hand. */
export function Workers() {
	const ns = useNamespace();
	const { q = "" } = useSearch({ strict: false });
	const set = useAddress();
	return (
		<Page title="Workers" name="Workers">
			<search className="selection">
				<input
					type="search"
					aria-label="Host, worker, queue or client"
					placeholder="host, worker, queue…"
					value={q}
					onChange={(e) => set({ q: e.target.value })}
				/>
				<Slots ns={ns} />
			</search>
			<WorkerList words={q} />
		</Page>
	);
}

/** Slots sums up what all workers can take, and have. */
function Slots({ ns }: { ns: string }) {
	const rows = useRows<Worker>(ns, "workers");
	if (!rows || rows.length === 0) return null;
	const hosts = new Set(rows.map((w) => w.host).filter(Boolean)).size;
	const sum = (pick: (w: Worker) => number | undefined) => rows.reduce((n, w) => n + (pick(w) ?? 0), 0);
	return (
		<span>
			{many(rows.length, "worker")}
			{hosts > 0 ? ` on ${many(hosts, "host")}` : ""} · slots in use{" "}
			<Meter used={sum((w) => w.running)} all={sum((w) => w.slots)} calm label="slots in use of all workers" />
		</span>
	);
}

/** WorkerList lists workers, of a queue where one is given. */
export function WorkerList({ queue, words = "" }: { queue?: string; words?: string }) {
	const ns = useNamespace();
	const { rows, error, retry } = useFigures<Worker>(ns, "workers", read);
	const shown = useMemo(
		() =>
			(rows ?? [])
				.filter((w) => (!queue || w.queues?.includes(queue)) && matches(w, words))
				.sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1)),
		[rows, queue, words],
	);
	if (!rows) return error ? <Failed error={error} retry={retry} what="The workers" /> : <Loading what="the workers" />;
	return (
		<Grid
			label={queue ? `Workers of ${queue}` : "Workers"}
			columns={columns}
			rows={shown}
			id={idOf}
			detail={(w) => <Detail worker={w} />}
			empty={words && rows.length > 0 ? <Empty>No worker matches.</Empty> : <NoWorker queue={queue} />}
		/>
	);
}

/** NoWorker says how many tasks wait for one, and how one is started. */
function NoWorker({ queue }: { queue: string | undefined }) {
	const ns = useNamespace();
	const queues = useRows<QueueStats>(ns, "queues");
	const waiting = (queues ?? []).filter((q) => (!queue || q.queue === queue) && (q.ready ?? 0) > 0);
	const n = waiting.reduce((sum, q) => sum + (q.ready ?? 0), 0);
	const first = queue ?? waiting[0]?.queue ?? "mail";
	return (
		<Empty command={`millrace work -q ${first} --exec ./${first.replaceAll(/[^\w-]/g, "_")}.sh`}>
			No worker {queue ? `takes tasks of ${queue}` : "is connected"}
			{n > 0 ? `, and ${many(n, "task waits", "tasks wait")}` : ""}.
		</Empty>
	);
}

/** At most this many queues of a worker are looked at. */
const mostQueues = 16;

/** Detail is what a worker has in hand, and what it can be told. */
function Detail({ worker: w }: { worker: Worker }) {
	const ns = useNamespace();
	const query = useQuery({
		queryKey: [ns, "worker tasks", w.id],
		// Queue by queue, where an index finds what runs: over all queues one look ends in what waits.
		queryFn: async () => {
			const queues = w.queues?.length ? w.queues.slice(0, mostQueues).map((queue) => ({ queue })) : [{}];
			const pages = await Promise.all(
				queues.map((q) =>
					call(api.GET("/v1/tasks", { params: { query: { ...q, worker: w.id ?? "", state: "running", limit: 100 } } })),
				),
			);
			return {
				tasks: pages.flatMap((p) => p.tasks ?? []).slice(0, 100),
				cursor: pages.find((p) => p.cursor)?.cursor ?? (queues.length < (w.queues?.length ?? 0) ? "more" : ""),
			};
		},
		refetchInterval: 5000,
	});
	const [quiet, busy] = useAct({
		name: (on: boolean) => (on ? `Quiet ${w.id}` : `Let ${w.id} take tasks`),
		run: (on: boolean) =>
			call(api.POST("/v1/workers/{worker}:quiet", { params: { path: { worker: w.id ?? "" } }, body: { on } })),
		done: (_, on) =>
			on
				? {
						text: `${w.id} is given no further tasks. What it runs goes on.`,
						action: { name: "Undo", run: () => void quiet(false) },
					}
				: undefined,
	});
	const tasks = query.data?.tasks ?? [];
	return (
		<>
			<div className="selection">
				<Button needs={operate} disabled={busy} onClick={() => quiet(!w.quiet)}>
					{w.quiet ? "Let it take tasks" : "Quiet"}
				</Button>
				<span className="dim">
					{w.quiet ? "It is given no tasks." : "Quiet: no further tasks, what it runs goes on."} Connected{" "}
					<When at={w.connected_at} />
					{w.sessions && w.sessions.length > 0
						? ` · ${many(w.sessions.length, "stream")}`
						: " · by claims, without a stream"}
				</span>
			</div>
			{w.kinds && w.kinds.length > 0 ? (
				<p>
					handlers for: <span className="mono">{w.kinds.join(" ")}</span>
				</p>
			) : null}
			{query.error ? (
				<ReadFailed query={query} what="Its tasks" />
			) : tasks.length > 0 ? (
				<Table
					label="Its tasks"
					columns={[
						{
							id: "id",
							name: "task",
							cell: (t) => (
								<Link to="/$ns/tasks/$id" params={{ ns, id: t.id ?? "" }}>
									<Id id={t.id} />
								</Link>
							),
						},
						{ id: "queue", name: "queue", cell: (t) => t.queue },
						{ id: "kind", name: "kind", cell: (t) => t.kind },
						{ id: "try", name: "try", num: true, cell: (t) => t.attempt },
						{ id: "since", name: "runs for", cell: (t) => <Since at={t.started_at} /> },
						{ id: "lease", name: "lease ends", cell: (t) => <When at={t.lease_until} /> },
					]}
					rows={tasks}
					id={(t) => t.id}
				/>
			) : query.data ? (
				<p className="dim">It has no task in hand{query.data.cursor ? " among those that were looked at" : ""}.</p>
			) : (
				<Loading what="its tasks" />
			)}
		</>
	);
}
