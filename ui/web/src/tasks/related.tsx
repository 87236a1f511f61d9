import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { visible } from "../format";
import { Copy, Facts } from "../parts/basic";
import { type Task, write } from "./filter";
import { QueueLink, WorkerLink } from "./why";

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
