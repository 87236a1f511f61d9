import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, call, gone, newRequestId, type Schemas } from "../api/client";
import { asApiError } from "../api/errors";
import { ago, count, many, parseTime, rate, size, visible } from "../format";
import { useTold } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Button, Empty, Facts, Failed, Loading, Page, Since, State, Tabs, When } from "../parts/basic";
import { BulkDialog } from "../parts/bulk-dialog";
import { Confirm } from "../parts/dialog";
import { HistoryPanel } from "../parts/history";
import { LastTasks } from "../parts/last-tasks";
import { Menu } from "../parts/menu";
import { operate, PauseMenu, useResume } from "../parts/queue-acts";
import { ErrorGroups } from "./dead";
import { QueueLimits } from "./queue-limits";
import { ConfigView, QueueSettings, useConfig } from "./queue-settings";
import { WorkerList } from "./workers";

type QueueStats = Schemas["QueueStats"];

const tabs = ["tasks", "limits", "settings", "errors", "workers", "history"] as const;

/** useQueue follows the counters of a queue: live once it is known to be there. */
function useQueue(queue: string) {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	const query = useQuery({
		queryKey: [ns, "queue", queue],
		queryFn: () => call(api.GET("/v1/queues/{queue}/stats", { params: { path: { queue } } })),
		retry: false,
		refetchInterval: status === "failing" ? 5000 : false,
	});
	// Where no node leads, the stream has what this node knows.
	const unled = query.error ? asApiError(query.error).unled : false;
	const { row: live, newer } = useTold<QueueStats>(
		ns,
		query.data || unled ? `queue:${queue}` : undefined,
		undefined,
		query,
	);
	const stats = unled ? (live ?? query.data) : query.error ? undefined : newer ? live : query.data;
	return { stats, error: unled && stats ? undefined : query.error, retry: query.refetch };
}

/** Queue is one queue: what it has, how it goes, how it is set, and what can be done to it. */
export function Queue() {
	const ns = useNamespace();
	const { queue = "", tab = "tasks" } = useParams({ strict: false }) as { queue?: string; tab?: string };
	const { stats, error, retry } = useQueue(queue);
	const [dialog, setDialog] = useState<"redrive" | "task" | "json" | "delete">();
	const [resume, resuming] = useResume();
	const close = () => setDialog(undefined);
	const link = (t: string) => ({ to: "/$ns/queues/$queue/$tab", params: { ns, queue, tab: t } }) as const;
	return (
		<Page
			name={queue}
			title={
				<>
					{visible(queue)} {stats ? <How stats={stats} /> : null}
				</>
			}
			actions={
				<>
					{stats?.paused ? (
						<Button kind="main" needs={operate} disabled={resuming} onClick={() => resume([queue])}>
							Resume
						</Button>
					) : (
						<PauseMenu queues={[queue]} />
					)}
					<Button needs={operate} disabled={!stats?.dead} onClick={() => setDialog("redrive")}>
						Redrive dead…
					</Button>
					<Menu
						label="⋯"
						title="More actions"
						items={[
							{ name: "New task…", needs: "task:create", onPick: () => setDialog("task") },
							{ name: "Configuration as JSON", onPick: () => setDialog("json") },
							{ name: "Delete…", needs: "admin", danger: true, onPick: () => setDialog("delete") },
						]}
					/>
				</>
			}
		>
			{error ? (
				<Failed error={asApiError(error)} retry={() => retry()} what="The queue" />
			) : stats ? (
				<Figures stats={stats} />
			) : (
				<Loading what="the queue" />
			)}
			<Tabs
				label="Parts of the queue"
				items={[
					{ name: "Tasks", link: tab === "tasks" ? ({ to: ".", params: true } as never) : link("tasks") },
					{ name: "Limits & keys", link: link("limits") },
					{ name: "Settings", link: link("settings") },
					{ name: "Errors", link: link("errors") },
					{ name: "Workers", link: link("workers"), count: stats?.workers },
					{ name: "History", link: link("history") },
				]}
			/>
			<Tab tab={tab} queue={queue} stats={stats} />
			{dialog === "redrive" ? (
				<BulkDialog action="redrive" title={`Redrive the dead of ${queue}`} filter={{ queue }} onClose={close} />
			) : null}
			{dialog === "task" ? <NewTask queue={queue} onClose={close} /> : null}
			{dialog === "json" ? <ConfigView queue={queue} onClose={close} /> : null}
			{dialog === "delete" ? <DeleteQueue queue={queue} stats={stats} onClose={close} /> : null}
		</Page>
	);
}

function Tab({ tab, queue, stats }: { tab: string; queue: string; stats: QueueStats | undefined }): ReactNode {
	switch (tab) {
		case "limits":
			return <QueueLimits queue={queue} stats={stats} />;
		case "settings":
			return <QueueSettings queue={queue} />;
		case "errors":
			return <ErrorGroups queue={queue} />;
		case "workers":
			return <WorkerList queue={queue} />;
		case "history":
			return <HistoryPanel queue={queue} title="What it did lately" />;
		default:
			return tabs.includes(tab as "tasks") ? (
				<LastTasks
					of={{ queue }}
					label={`Newest tasks of ${queue}`}
					empty={<Empty command={`millrace task create ${queue} '{"to":"ada"}'`}>The queue has no tasks.</Empty>}
				/>
			) : (
				<Empty>There is no such part.</Empty>
			);
	}
}

/** How says whether the queue gives out tasks, and if not, since when and why. */
function How({ stats }: { stats: QueueStats }) {
	const now = useNow();
	const p = stats.paused;
	if (!p)
		return (
			<span className="state hue-ready">
				<span aria-hidden="true">●</span> gives out tasks
			</span>
		);
	const until = parseTime(p.until);
	return (
		<span>
			<State state="paused" />{" "}
			<span className="dim">
				{p.by ? `by ${p.by} ` : ""}
				<When at={p.since} />
				{until ? `, goes on ${ago(until, now)}` : ""}
				{p.reason ? `: ${visible(p.reason)}` : ""}
			</span>
		</span>
	);
}

const states = ["ready", "running", "scheduled", "blocked", "dead", "completed", "cancelled"] as const;

function Figures({ stats }: { stats: QueueStats }) {
	const ns = useNamespace();
	const limit = stats.limits?.max_tasks;
	return (
		<Facts
			items={[
				...states.map((s): [string, ReactNode] => [
					s,
					<Link key={s} to="/$ns/tasks" params={{ ns }} search={{ q: `queue:${stats.queue} state:${s}` }}>
						{count(stats[s] ?? 0)}
					</Link>,
				]),
				["oldest ready", <Since key="oldest" at={stats.oldest_ready} />],
				["in", rate(stats.rates?.created)],
				["out", rate(stats.rates?.completed)],
				["failed", rate(stats.rates?.failed)],
				["crashed", rate(stats.rates?.crashed)],
				["bytes", size(stats.bytes)],
				["created ever", count(stats.created)],
				...(stats.dead_letters_lost
					? ([
							[
								"dead letters lost",
								<strong key="lost" className="hue-dead" title="dead tasks, ever, of which there was no room for a copy">
									{count(stats.dead_letters_lost)}
								</strong>,
							],
						] as [string, ReactNode][])
					: []),
				...(limit ? [["bound", `${many(limit, "task")} a partition`] as [string, string]] : []),
			]}
		/>
	);
}

/** NewTask creates one task of the queue. */
function NewTask({ queue, onClose }: { queue: string; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const [kind, setKind] = useState("");
	const [payload, setPayload] = useState("{}");
	const [delay, setDelay] = useState("");
	const [requestId] = useState(newRequestId);
	const [fault, setFault] = useState("");
	return (
		<Confirm
			wide
			title={`New task of ${queue}`}
			what={<p>It is ready at once, unless it is delayed.</p>}
			verb="Create"
			needs="task:create"
			blocked={fault !== ""}
			onConfirm={async () => {
				const head = { queue, ...(kind ? { kind } : {}), ...(delay ? { delay } : {}) };
				// The payload goes as it was typed: numbers and the order of keys stay.
				const body = `${JSON.stringify(head).slice(0, -1)},"payload":${payload.trim() || "null"}}`;
				const made = await call(
					api.POST("/v1/tasks", {
						params: { header: { "Idempotency-Key": requestId } },
						body: body as never,
						bodySerializer: (b: unknown) => b as string,
						headers: { "Content-Type": "application/json" },
					}),
				);
				queries.invalidateQueries();
				if (made.id) navigate({ to: "/$ns/tasks/$id", params: { ns, id: made.id } });
			}}
			onClose={onClose}
		>
			<div className="field-row">
				<label className="field">
					Kind
					<input value={kind} onChange={(e) => setKind(e.target.value.trim())} autoComplete="off" spellCheck={false} />
				</label>
				<label className="field">
					Delay
					<input
						value={delay}
						placeholder="such as 90s"
						onChange={(e) => setDelay(e.target.value.trim())}
						autoComplete="off"
					/>
				</label>
			</div>
			<label className="field">
				<span>Payload, as JSON {fault ? <span className="hue-dead">{fault}</span> : null}</span>
				<textarea
					rows={6}
					value={payload}
					spellCheck={false}
					aria-invalid={fault !== ""}
					onChange={(e) => {
						setPayload(e.target.value);
						try {
							JSON.parse(e.target.value.trim() || "null");
							setFault("");
						} catch (x) {
							setFault(x instanceof Error ? x.message : "is not JSON");
						}
					}}
				/>
			</label>
		</Confirm>
	);
}

/** DeleteQueue removes a queue with its tasks, once its name was typed. */
function DeleteQueue({ queue, stats, onClose }: { queue: string; stats: QueueStats | undefined; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const config = useConfig(queue);
	const [purge, setPurge] = useState(false);
	const open = states.slice(0, 4).reduce((n, s) => n + (stats?.[s] ?? 0), 0);
	const all = states.reduce((n, s) => n + (stats?.[s] ?? 0), 0);
	return (
		<Confirm
			title={`Delete the queue ${queue}?`}
			what={<p>The queue goes with its configuration and its {many(all, "task")}. Its name is free at once.</p>}
			lost="Neither the queue nor its tasks can be brought back."
			verb="Delete the queue"
			needs="admin"
			type={queue}
			blocked={open > 0 && !purge}
			onConfirm={async () => {
				await gone(
					api.DELETE("/v1/queues/{queue}", {
						params: {
							path: { queue },
							query: purge ? { purge: "true" } : {},
							header: config.data ? { "If-Match": String(config.data.version ?? "0") } : {},
						},
					}),
				);
				// What is gone is not read again.
				await navigate({ to: "/$ns/queues", params: { ns } });
				queries.removeQueries({ predicate: (q) => q.queryKey[2] === queue });
				queries.invalidateQueries();
			}}
			onClose={onClose}
		>
			{open > 0 ? (
				<label className="check">
					<input type="checkbox" checked={purge} onChange={(e) => setPurge(e.target.checked)} />
					also with its tasks that have not ended ({count(open)}): they are cancelled, and their workers lose them
				</label>
			) : null}
		</Confirm>
	);
}
