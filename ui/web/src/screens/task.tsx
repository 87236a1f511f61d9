import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { curl } from "../curl";
import { many, size, visible } from "../format";
import { useKeys } from "../keys";
import { useNamespace } from "../namespace";
import { Button, Copy, copyText, Empty, Facts, Failed, Id, Loading, Page, State, Tabs, When } from "../parts/basic";
import { Bytes } from "../parts/bytes";
import { BatchLink, LimiterLink, Names, QueueLink } from "../parts/links";
import { Menu } from "../parts/menu";
import { toast } from "../parts/toast";
import type { Search } from "../router";
import { useMay } from "../session";
import { useTaskActions } from "../tasks/actions";
import { EffectsPanel } from "../tasks/effects-view";
import type { Task as TaskRow } from "../tasks/filter";
import { LogsPanel } from "../tasks/logs";
import { RelatedPanel } from "../tasks/related";
import { choose, TimelinePanel } from "../tasks/timeline-view";
import { useAttempts, useTask } from "../tasks/use-task";
import { WhyPanel } from "../tasks/why";

const tabs = ["timeline", "payload", "effects", "result", "logs", "related"] as const;
type Tab = (typeof tabs)[number];

const names: Record<Tab, string> = {
	timeline: "Timeline",
	payload: "Payload",
	effects: "Effects",
	result: "Result",
	logs: "Logs",
	related: "Related",
};

export function Task() {
	const ns = useNamespace();
	const { id = "", tab: wanted } = useParams({ strict: false }) as { id?: string; tab?: string };
	const tab = tabs.includes(wanted as Tab) ? (wanted as Tab) : "timeline";
	const { task, error, at, retry } = useTask(ns, id);
	const { actions, dialog } = useTaskActions(ns, task);
	const navigate = useNavigate();
	const may = useMay();
	const go = (to: Tab) =>
		to === "timeline"
			? navigate({ to: "/$ns/tasks/$id", params: { ns, id } })
			: navigate({ to: "/$ns/tasks/$id/$tab", params: { ns, id, tab: to } });
	const asCurl = () => curl("GET", `/v1/tasks/${encodeURIComponent(id)}?ns=${encodeURIComponent(ns)}`);
	const copy = (text: string, what: string) => copyText(text).then(() => toast(`${what} copied`));
	const keys: Record<string, () => void> = {
		y: () => copy(id, "Id"),
		Y: () => copy(asCurl(), "Command"),
		u: () => navigate({ to: "/$ns/tasks", params: { ns } }),
	};
	for (const [i, t] of tabs.entries()) keys[String(i + 1)] = () => go(t);
	for (const a of actions) if (a.letter) keys[a.letter] = () => may(a.needs) && !a.busy && a.run();
	useKeys(keys);
	if (!task)
		return (
			<Page title={<Id id={id} n={8} />} name={`Task ${id.slice(-6)}`}>
				{error?.code === "NOT_FOUND" ? (
					<Empty>
						There is no task {id} in namespace {ns}. It was deleted, or its time was over: a queue keeps tasks that have
						ended for as long as its settings say.
					</Empty>
				) : error ? (
					<Failed error={error} retry={retry} what="The task" />
				) : (
					<Loading what="the task" />
				)}
			</Page>
		);
	return (
		<Page
			name={`${task.kind} …${id.slice(-6)}`}
			title={
				<>
					<span>
						{task.kind} <span className="dim">in</span> <QueueLink ns={ns} queue={task.queue} />
					</span>
					<State state={task.state} />
					<Tries task={task} />
				</>
			}
			actions={
				<>
					{actions.map((a) => (
						<Button
							key={a.name}
							needs={a.needs}
							letter={a.letter}
							kind={a.danger ? "danger" : "plain"}
							disabled={a.busy}
							onClick={a.run}
						>
							{a.name}
						</Button>
					))}
					<Menu
						label="⋯"
						title="More"
						items={[
							{ name: "Copy id", onPick: () => copy(id, "Id") },
							{ name: "Copy as curl", onPick: () => copy(asCurl(), "Command") },
							{ name: "Copy the address", onPick: () => copy(location.href, "Address") },
						]}
					/>
				</>
			}
		>
			{error?.code === "NOT_FOUND" ? (
				<p className="warn">This task is not there any more. What is shown is what was read last.</p>
			) : error ? (
				<Failed error={error} retry={retry} what="The task" />
			) : null}
			<Head ns={ns} task={task} />
			<WhyPanel ns={ns} task={task} />
			<Tabs
				label="Task"
				items={tabs.map((t) => ({
					name: names[t],
					link:
						t === "timeline"
							? { to: "/$ns/tasks/$id", params: { ns, id } }
							: { to: "/$ns/tasks/$id/$tab", params: { ns, id, tab: t } },
				}))}
			/>
			{tab === "timeline" ? <TimelineTab ns={ns} task={task} /> : null}
			{tab === "payload" ? <PayloadTab task={task} /> : null}
			{tab === "effects" ? <EffectsPanel ns={ns} task={task} partition={at?.partition} /> : null}
			{tab === "result" ? <ResultTab ns={ns} task={task} /> : null}
			{tab === "logs" ? <LogsPanel ns={ns} task={task} /> : null}
			{tab === "related" ? <RelatedPanel ns={ns} task={task} /> : null}
			{dialog}
		</Page>
	);
}

/** Tries says which try it is, and how many failures it may have. */
function Tries({ task }: { task: TaskRow }) {
	const running = task.state === "running";
	const most = task.max_attempts ? ` of ${task.max_attempts}` : "";
	return (
		<span className="dim">
			{running ? `try ${task.attempt}` : task.attempt ? many(task.attempt, "try", "tries") : "not tried yet"}
			{task.failures ? ` · ${task.failures}${most} failures` : ""}
			{task.crashes ? ` · ${task.crashes}${task.max_crashes ? ` of ${task.max_crashes}` : ""} crashes` : ""}
			{task.redrives ? ` · redriven ${task.redrives} times` : ""}
		</span>
	);
}

/** Head is what is known of a task at a glance. */
function Head({ ns, task }: { ns: string; task: TaskRow }) {
	const items: [string, ReactNode][] = [
		[
			"id",
			<span key="id" className="mono">
				{task.id} <Copy text={task.id ?? ""} label="Copy the id, key y" />
			</span>,
		],
		["created", <When key="c" at={task.created_at} />],
		["priority", task.priority ?? 0],
	];
	if (task.finished_at) items.push(["ended", <When key="f" at={task.finished_at} />]);
	if (task.state === "scheduled") items.push(["runs", <When key="r" at={task.run_at} />]);
	if (task.expires_at) items.push(["expires", <When key="e" at={task.expires_at} />]);
	if (task.key) items.push(["key", visible(task.key)]);
	if (task.batch) items.push(["batch", <BatchLink key="b" ns={ns} id={task.batch} />]);
	if (task.limiters?.length)
		items.push(["limiters", <Names key="x" of={task.limiters} one={(name) => <LimiterLink ns={ns} name={name} />} />]);
	if (task.lease) items.push(["lease", task.lease]);
	if (task.max_run) items.push(["may run", task.max_run]);
	const labels = Object.entries((task.labels ?? {}) as Record<string, string>);
	if (labels.length > 0)
		items.push([
			"labels",
			<span key="l" className="mono">
				{labels.map(([k, v]) => `${k}=${visible(v)}`).join(" ")}
			</span>,
		]);
	const p = task.progress;
	const told = p && (p.percent !== undefined || p.message);
	return (
		<>
			<Facts items={items} />
			{told ? (
				<div className="meter progress">
					{p.percent === undefined ? null : <progress max={100} value={p.percent} aria-label="Progress" />}
					<span>
						{p.percent === undefined ? "" : `${p.percent} % `}
						<span className="wrap">{visible(p.message ?? "")}</span>{" "}
						<span className="dim">
							told <When at={p.at} />
							{task.state === "running" ? "" : `, in try ${task.attempt}`}
						</span>
					</span>
				</div>
			) : null}
		</>
	);
}

function TimelineTab({ ns, task }: { ns: string; task: TaskRow }) {
	const { attempt } = useSearch({ strict: false }) as Search;
	const chosen = attempt && /^\d+$/.test(attempt) ? Number(attempt) : undefined;
	const query = useAttempts(ns, task);
	const navigate = useNavigate();
	const attempts = query.data?.attempts ?? [];
	const step = (by: number) => {
		const at = attempts.indexOf(choose(attempts, chosen) ?? attempts.at(-1)!);
		const next = attempts[Math.max(0, Math.min(attempts.length - 1, at + by))];
		if (next)
			navigate({
				to: "/$ns/tasks/$id",
				params: { ns, id: task.id ?? "" },
				search: { attempt: String(next.number) },
				replace: true,
			});
	};
	useKeys({ "[": () => step(-1), "]": () => step(1) });
	return <TimelinePanel ns={ns} task={task} chosen={chosen} />;
}

function PayloadTab({ task }: { task: TaskRow }) {
	const headers = task.headers ?? [];
	return (
		<section className="panel" aria-label="Payload">
			{task.payload_size === 0 ? (
				<p className="dim">The payload has 0 bytes.</p>
			) : (
				<Bytes
					// A payload that was edited has another size, or is read again by the edit.
					key={task.payload_size}
					path={`/v1/tasks/${encodeURIComponent(task.id ?? "")}/payload`}
					name={`payload ${(task.id ?? "").slice(-6)}`}
				/>
			)}
			{headers.length > 0 ? (
				<>
					<h3>Headers</h3>
					<dl className="facts">
						{headers.map((h) => (
							<div key={h.name}>
								<dt>{visible(h.name ?? "")}</dt>
								<dd className="mono">{visible(h.value ?? "")}</dd>
							</div>
						))}
					</dl>
				</>
			) : null}
		</section>
	);
}

function ResultTab({ ns, task }: { ns: string; task: TaskRow }) {
	if (task.has_result && task.result_size !== 0)
		return (
			<section className="panel" aria-label="Result">
				<Bytes
					path={`/v1/tasks/${encodeURIComponent(task.id ?? "")}/output`}
					name={`result ${(task.id ?? "").slice(-6)}`}
				/>
			</section>
		);
	switch (task.state) {
		case "completed":
			return <Empty>The task completed{task.has_result ? " with an empty result" : " without a result"}.</Empty>;
		case "dead":
			return (
				<Empty>
					There is no result: the task is dead.{" "}
					<Link to="/$ns/tasks/$id" params={{ ns, id: task.id ?? "" }}>
						Its error is in the timeline.
					</Link>
				</Empty>
			);
		case "cancelled":
			return <Empty>There is no result: the task was cancelled.</Empty>;
	}
	return (
		<Empty>No result yet{task.payload_size === undefined ? "" : `; its payload has ${size(task.payload_size)}`}.</Empty>
	);
}
