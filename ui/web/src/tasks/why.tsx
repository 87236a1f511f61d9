import { Link } from "@tanstack/react-router";
import { useAct } from "../act";
import { api, call, type Schemas } from "../api/client";
import { count, many, visible } from "../format";
import { Button, Command, ReadFailed, Since, When } from "../parts/basic";
import { Icon } from "../parts/icon";
import { LimiterLink, Names, QueueLink, TaskLink, WorkerLink } from "../parts/links";
import { type Task, write } from "./filter";
import { deadBecause } from "./timeline";
import { useWhy } from "./use-task";

type Reason = Schemas["WhyReason"];
type Why = Schemas["WhyResponse"];

/** Shapes of reasons. */
const icons: Record<string, string> = {
	paused: "pause",
	no_worker: "worker",
	no_handler: "worker",
	no_slot: "worker",
	partition_unled: "stop",
	disk_full: "stop",
	behind: "hourglass",
	lane_limit: "hourglass",
	queue_limit: "hourglass",
	limiter: "hourglass",
	after: "hourglass",
	tenant_running: "hourglass",
	order: "hourglass",
	max_workers: "worker",
	rate: "clock",
	next: "next",
	delay: "clock",
	retry: "clock",
	snooze: "clock",
	running: "worker",
	stopping: "stop",
};

/** titles are what the panel says of a task, by its state. Others have none. */
const titles: Record<string, string> = {
	blocked: "Why it waits",
	scheduled: "Why it waits",
	ready: "Why it waits",
	running: "Who has it",
	dead: "Why it is dead",
	cancelled: "Why it is cancelled",
};

/** WhyPanel says why a task is where it is: what holds it up, who does, and what can be done about it. */
export function WhyPanel({ ns, task }: { ns: string; task: Task }) {
	const title = titles[task.state ?? ""];
	const query = useWhy(ns, task, title !== undefined);
	if (title === undefined) return null;
	if (query.error) return <ReadFailed query={query} what={title} />;
	const why = query.data;
	if (!why || why.state !== task.state) return <div className="why" aria-busy="true" />;
	const reasons = why.reasons ?? [];
	return (
		<section className={task.state === "dead" ? "why is-dead" : "why"} aria-label={title}>
			<h2>
				{task.state === "running" && task.cancel?.at ? "It is to stop" : title}
				<span className="dim">
					{" "}
					· {task.state === "ready" ? "ready for " : ""}
					<Since at={why.since} />
				</span>
			</h2>
			<ul>
				{reasons.map((r) => (
					<li key={`${r.code} ${r.object ?? ""}`}>
						<Icon name={icons[r.code ?? ""] ?? "dot"} />
						<span>
							<Because ns={ns} task={task} why={why} reason={r} /> <code className="dim">{r.code}</code>
						</span>
					</li>
				))}
			</ul>
			{reasons.length === 0 ? <p className="dim">The server names no reason.</p> : null}
			{task.state === "dead" ? <Dead ns={ns} task={task} /> : null}
		</section>
	);
}

/** Dead is the error of a dead task, and where else it is. */
function Dead({ ns, task }: { ns: string; task: Task }) {
	return (
		<>
			{task.error ? (
				<p className="wrap">
					<strong className="mono">{visible(task.error.code ?? "")}</strong> {visible(task.error.message ?? "")}
				</p>
			) : null}
			{task.fingerprint ? (
				<p>
					<Link
						to="/$ns/tasks"
						params={{ ns }}
						search={{ q: write({ queue: task.queue ?? "", state: "dead", fingerprint: task.fingerprint }) }}
					>
						dead tasks of {task.queue} with the same error
					</Link>
				</p>
			) : null}
		</>
	);
}

/** Because is a reason in words, with links to what holds the task up. */
function Because({ ns, task, why, reason: r }: { ns: string; task: Task; why: Why; reason: Reason }) {
	const queue = why.queue ?? task.queue ?? "";
	const note = r.note ? <q className="wrap">{visible(r.note)}</q> : null;
	const until = r.until ? (
		<>
			{" "}
			<When at={r.until} />
		</>
	) : null;
	const by = r.held_by ?? [];
	const workers = <Names of={by} one={(w) => <WorkerLink ns={ns} worker={w} />} />;
	const holders =
		by.length > 0 ? (
			<>
				{": "}
				<Names of={by} one={(id) => <TaskLink ns={ns} id={id} />} />
			</>
		) : null;
	/** Where the limit is set, and what else waits for it. */
	const limits = (
		<>
			{" "}
			<Link
				to="/$ns/queues/$queue/$tab"
				params={{ ns, queue, tab: "limits" }}
				search={r.object && r.object !== queue ? { prefix: r.object } : {}}
			>
				Limits
			</Link>
		</>
	);
	switch (r.code) {
		case "lane_limit":
		case "order":
			return (
				<>
					{r.code === "order" ? "A task that goes before it in" : `As many tasks run (${r.limit}) as may in`}{" "}
					{r.object ? <>the line of key {visible(r.object)}</> : "the line of tasks without a key"}
					{r.code === "order" ? " has not ended" : null}
					{holders}
					{limits}
				</>
			);
		case "queue_limit":
			return (
				<>
					As many tasks of queue <QueueLink ns={ns} queue={queue} /> run as may ({r.limit}){holders}
					{limits}
				</>
			);
		case "max_workers":
			return (
				<>
					As many workers have tasks of queue <QueueLink ns={ns} queue={queue} /> as may ({r.limit}): {workers}
					{limits}
				</>
			);
		case "limiter":
			return (
				<>
					As much {r.until ? "began lately" : "runs"} under limiter <LimiterLink ns={ns} name={r.object} /> as may (
					{r.limit}){until ? <>; the next one goes{until}</> : null}
					{holders}
				</>
			);
		case "tenant_running":
			return (
				<>
					As many tasks of the tenant run as may: {r.limit}{" "}
					<Link to="/$ns/limits" params={{ ns }}>
						Limits
					</Link>
				</>
			);
		case "after":
			return r.object ? (
				<>
					It waits for task <TaskLink ns={ns} id={r.object} />, which {visible(r.note ?? "")}
				</>
			) : (
				<>
					It waits for {r.limit === 1 ? "another task" : many(r.limit, "task")} to end{holders}
				</>
			);
		case "rate":
			return (
				<>
					{r.object === queue ? (
						<>
							Queue <QueueLink ns={ns} queue={queue} />
						</>
					) : r.object ? (
						<>Its key {visible(r.object)}</>
					) : (
						"The line of tasks without a key"
					)}{" "}
					began as much lately as its rate of {r.limit} lets it{until ? <>; the next one goes{until}</> : null}
					{limits}
				</>
			);
		case "paused":
			if (r.object !== undefined && r.object !== queue)
				return (
					<>
						Key {visible(r.object)} is paused
						{by.length > 0 ? <> by {by.map(visible).join(", ")}</> : null}
						{note ? <>: {note}</> : null}
						{until ? <>, it goes on{until}</> : <>, until it is resumed</>}
						{limits}
					</>
				);
			return (
				<>
					Queue <QueueLink ns={ns} queue={queue} /> is paused
					{by.length > 0 ? <> by {by.map(visible).join(", ")}</> : null}
					{note ? <>: {note}</> : null}
					{until ? <>, it goes on{until}</> : <>, until it is resumed</>} <Resume ns={ns} queue={queue} />
				</>
			);
		case "no_worker":
			return (
				<>
					{by.length > 0 ? "All workers of" : "No worker takes tasks of"} queue <QueueLink ns={ns} queue={queue} />
					{by.length > 0 ? <> are quiet: {workers}</> : "."}{" "}
					<Link to="/$ns/workers" params={{ ns }}>
						Workers
					</Link>{" "}
					<Command text={`millrace work -q ${queue} --exec ./run.sh`} />
				</>
			);
		case "no_handler":
			return (
				<>
					No worker of queue <QueueLink ns={ns} queue={queue} /> has a handler for kind {r.object}; there are {workers}
				</>
			);
		case "no_slot":
			return (
				<>
					All {many(r.limit ?? 0, "slot")} of the workers of queue <QueueLink ns={ns} queue={queue} /> are in use:{" "}
					{workers}
				</>
			);
		case "behind":
			return (
				<>
					<Link to="/$ns/tasks" params={{ ns }} search={{ q: `queue:${queue} state:ready`, order: "asc" }}>
						{why.exact ? "" : "more than "}
						{many(why.ahead, "task")} {why.ahead === 1 ? "goes" : "go"} before it
					</Link>{" "}
					in queue <QueueLink ns={ns} queue={queue} />
					{by.length > 0 ? (
						<>
							{": "}
							<Names of={by} more={(why.ahead ?? 0) > by.length} one={(id) => <TaskLink ns={ns} id={id} />} />
						</>
					) : null}
				</>
			);
		case "next":
			return (
				<>
					It is the next one of queue <QueueLink ns={ns} queue={queue} />: a worker that asks for a task gets it.
				</>
			);
		case "delay":
			return <>Its time has not come: it runs{until ?? " later"}.</>;
		case "retry":
			return (
				<>
					The last try failed{by.length > 0 ? <> at {workers}</> : null}: {count(task.failures)} of{" "}
					{many(r.limit ?? task.max_attempts, "failure")}. The next one comes{until ?? " later"}.
				</>
			);
		case "snooze":
			return (
				<>
					{by.length > 0 ? workers : "Its worker"} put it off. The next try comes{until ?? " later"}.
				</>
			);
		case "running":
			return (
				<>
					<WorkerLink ns={ns} worker={r.object} /> holds it; its lease ends{until ?? " some time"}.
				</>
			);
		case "stopping":
			return (
				<>
					{r.object ? <>{visible(r.object)} asked</> : <>It was asked</>} for its cancel{note ? <>: {note}</> : null}.{" "}
					{by.length > 0 ? workers : "Its worker"} was told to stop
					{until ? <>; it is cancelled{until} at the latest</> : null}.
				</>
			);
		case "ended":
			if (task.state !== "dead") break;
			return (
				<>
					{deadBecause(r.note)}
					{r.object ? (
						<>
							; <WorkerLink ns={ns} worker={r.object} /> had it last
						</>
					) : null}
				</>
			);
	}
	return (
		<>
			{visible(r.text ?? "")}
			{by.length > 0 ? <> By {by.map(visible).join(", ")}.</> : null}
			{note ? <> {note}</> : null}
			{until}
		</>
	);
}

function Resume({ ns, queue }: { ns: string; queue: string }) {
	const [resume, busy] = useAct({
		name: () => `Resume ${queue}`,
		run: () => call(api.POST("/v1/queues/{queue}:resume", { params: { path: { queue }, query: { ns } } })),
		done: () => ({ text: `Queue ${queue} gives out tasks again.` }),
	});
	return (
		<Button needs="task:operate|admin" disabled={busy} onClick={() => resume(undefined)}>
			Resume {queue}
		</Button>
	);
}
