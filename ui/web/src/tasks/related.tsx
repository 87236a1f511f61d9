import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { count, tail, visible } from "../format";
import { Copy, Facts, State } from "../parts/basic";
import { QueueLink, TaskLink, WorkerLink } from "../parts/links";
import { type Task, write } from "./filter";

/** RelatedPanel leads to what a task has in common with others. */
export function RelatedPanel({ ns, task }: { ns: string; task: Task }) {
	const list = (q: string, name: ReactNode) => (
		<Link to="/$ns/tasks" params={{ ns }} search={{ q }}>
			{name}
		</Link>
	);
	const items: [string, ReactNode][] = [
		["queue", <QueueLink key="q" ns={ns} queue={task.queue} />],
		["same queue and kind", list(write({ queue: task.queue ?? "", kind: task.kind ?? "" }), task.kind)],
	];
	if (task.unique_key)
		items.push([
			"unique key",
			<span key="u">{list(write({ unique: task.unique_key }), visible(task.unique_key))}</span>,
		]);
	if (task.batch) items.push(["tasks of its batch", list(write({ batch: task.batch }), tail(task.batch, 6))]);
	if (task.dependents) items.push(["tasks that wait for it", count(task.dependents)]);
	if (task.tag)
		items.push([
			"tag",
			<span key="t" className="mono">
				{visible(task.tag)} <Copy text={task.tag} label="Copy the tag" />
			</span>,
		]);
	if (task.worker) items.push(["worker", <WorkerLink key="w" ns={ns} worker={task.worker} />]);
	if (task.worker) items.push(["tasks of this worker", list(write({ worker: task.worker }), task.worker)]);
	if (task.fingerprint)
		items.push([
			"same last error",
			list(
				write({ queue: task.queue ?? "", fingerprint: task.fingerprint }),
				<span className="mono">{task.fingerprint}</span>,
			),
		]);
	if (task.creator) items.push(["created by", visible(task.creator)]);
	const labels = Object.entries((task.labels ?? {}) as Record<string, string>);
	return (
		<section className="panel" aria-label="Related">
			<Facts items={items} />
			<After ns={ns} task={task} />
			<h3>Labels</h3>
			{labels.length === 0 ? <p className="dim">It has none.</p> : null}
			<ul>
				{labels.map(([k, v]) => (
					<li key={k}>
						{list(
							write({ labels: { [k]: v } }),
							<span className="mono">
								{k} = {visible(v) || "(empty)"}
							</span>,
						)}
					</li>
				))}
			</ul>
		</section>
	);
}

const otherwise: Record<string, string> = {
	hold: "it waits on",
	cancel: "it is cancelled",
	run: "it runs all the same",
};

/** After are the tasks that a task was made to wait for. */
function After({ ns, task }: { ns: string; task: Task }) {
	const after = task.after ?? [];
	if (after.length === 0) return null;
	return (
		<>
			<h3>Waits for</h3>
			<ul>
				{after.map((a) => (
					<li key={a.id}>
						<TaskLink ns={ns} id={a.id ?? ""} />{" "}
						{a.state ? <State state={a.state} /> : <span className="dim">not there any more</span>}{" "}
						<span className="dim">
							{a.on === "terminal" ? "until it has ended" : "until it has completed"}
							{a.waits ? "" : ", which is over"}
						</span>
					</li>
				))}
			</ul>
			{task.on_dep_failure ? (
				<p className="dim">Where one ends without being completed, {otherwise[task.on_dep_failure]}.</p>
			) : null}
		</>
	);
}
