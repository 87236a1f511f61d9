import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useAct } from "../act";
import { api, call, type Schemas } from "../api/client";
import { count } from "../format";
import { Button, Command, ReadFailed, Since, When } from "../parts/basic";
import { visible } from "../parts/bytes";
import { Icon } from "../parts/icon";
import { type Task, write } from "./filter";
import { deadBecause } from "./timeline";
import { useWhy } from "./use-task";

type Reason = Schemas["WhyReason"];
type Why = Schemas["WhyResponse"];

/** Shapes of reasons. */
const icons: Record<string, string> = {
	paused: "pause",
	no_worker: "worker",
	behind: "hourglass",
	next: "next",
	delay: "clock",
	retry: "clock",
	snooze: "clock",
	running: "worker",
	stopping: "stop",
};

/** WhyPanel says why a task waits: what holds it up, who did it, and what can be done about it. */
export function WhyPanel({ ns, task }: { ns: string; task: Task }) {
	const waits = task.state === "ready" || task.state === "scheduled" || task.state === "blocked";
	const on = waits || (task.state === "running" && !!task.cancel?.at);
	const query = useWhy(ns, task, on);
	if (task.state === "dead") return <Dead ns={ns} task={task} />;
	if (!on) return null;
	if (query.error) return <ReadFailed query={query} what="Why it waits" />;
	const why = query.data;
	if (!why || why.state !== task.state) return <div className="why" aria-busy="true" />;
	const reasons = waits ? (why.reasons ?? []) : (why.reasons ?? []).filter((r) => r.code === "stopping");
	return (
		<section className="why" aria-label="Why it waits">
			<h2>
				{waits ? "Why it waits" : "It is to stop"}
				{task.state === "ready" ? (
					<span className="dim">
						{" "}
						· ready for <Since at={why.since} />
					</span>
				) : null}
			</h2>
			<ul>
				{reasons.map((r) => (
					<li key={r.code}>
						<Icon name={icons[r.code ?? ""] ?? "dot"} />
						<Because ns={ns} task={task} why={why} reason={r} />
					</li>
				))}
			</ul>
			{reasons.length === 0 ? <p className="dim">The server names no reason.</p> : null}
		</section>
	);
}

/** Dead says why a task is dead, and where else its error is. */
function Dead({ ns, task }: { ns: string; task: Task }) {
	return (
		<section className="why is-dead" aria-label="Why it is dead">
			<h2>
				Why it is dead
				<span className="dim">
					{" "}
					· <When at={task.finished_at} />
				</span>
			</h2>
			<p>{deadBecause(task.reason)}</p>
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
		</section>
	);
}

/** Because is a reason in words, with links to what holds the task up. */
function Because({ ns, task, why, reason: r }: { ns: string; task: Task; why: Why; reason: Reason }) {
	const queue = why.queue ?? task.queue ?? "";
	const note = r.note ? <q className="wrap">{r.note}</q> : null;
	const until = r.until ? (
		<>
			{" "}
			<When at={r.until} />
		</>
	) : null;
	switch (r.code) {
		case "paused":
			return (
				<span>
					Queue <QueueLink ns={ns} queue={queue} /> is paused{r.object ? <> by {r.object}</> : null}
					{note ? <>: {note}</> : null}
					{until ? <>, it goes on{until}</> : <>, until it is resumed</>} <Resume ns={ns} queue={queue} />
				</span>
			);
		case "no_worker":
			return (
				<span>
					{r.object ? (
						<>
							No worker takes tasks of queue <QueueLink ns={ns} queue={queue} />.
						</>
					) : (
						<>
							All workers of queue <QueueLink ns={ns} queue={queue} /> are quiet.
						</>
					)}{" "}
					<Link to="/$ns/workers" params={{ ns }}>
						Workers
					</Link>{" "}
					<Command text={`millrace work -q ${queue} --exec ./run.sh`} />
				</span>
			);
		case "behind":
			return (
				<span>
					<Link to="/$ns/tasks" params={{ ns }} search={{ q: `queue:${queue} state:ready`, order: "asc" }}>
						{why.exact ? "" : "more than "}
						{count(why.ahead)} {why.ahead === 1 ? "task goes" : "tasks go"} before it
					</Link>{" "}
					in queue <QueueLink ns={ns} queue={queue} />
				</span>
			);
		case "next":
			return (
				<span>
					It is the next one of queue <QueueLink ns={ns} queue={queue} />: a worker that asks for a task gets it.
				</span>
			);
		case "delay":
			return <span>Its time has not come: it runs{until ?? " later"}.</span>;
		case "retry":
			return <span>The last try failed. The next one comes{until ?? " later"}.</span>;
		case "snooze":
			return <span>Its worker put it off. The next try comes{until ?? " later"}.</span>;
		case "running":
			return (
				<span>
					<WorkerLink ns={ns} worker={r.object} /> holds it; its lease ends{until ?? " some time"}.
				</span>
			);
		case "stopping":
			return (
				<span>
					{r.object ? <>{r.object} asked</> : <>It was asked</>} for its cancel{note ? <>: {note}</> : null}. Its worker
					was told to stop{until ? <>; it is cancelled{until} at the latest</> : null}.
				</span>
			);
	}
	return (
		<span>
			{r.text}
			{note ? <> {note}</> : null}
			{until}
		</span>
	);
}

export function QueueLink({ ns, queue }: { ns: string; queue: string | undefined }): ReactNode {
	if (!queue) return null;
	return (
		<Link to="/$ns/queues/$queue" params={{ ns, queue }}>
			{queue}
		</Link>
	);
}

/** WorkerLink leads to a worker among all of them. */
export function WorkerLink({ ns, worker }: { ns: string; worker: string | undefined }): ReactNode {
	if (!worker) return <span className="dim">–</span>;
	return (
		<Link to="/$ns/workers" params={{ ns }} search={{ q: worker }}>
			{worker}
		</Link>
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
