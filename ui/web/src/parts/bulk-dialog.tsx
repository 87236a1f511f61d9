import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { useAct } from "../act";
import { api, call, type Schemas } from "../api/client";
import { asApiError } from "../api/errors";
import { count, many, span } from "../format";
import { useNamespace } from "../namespace";
import { serverNow } from "../now";
import { Button, Failed, Id, Loading, ReadFailed, State, When } from "./basic";
import { type BulkAction, type BulkCount, filterText, newJobId, sumCounts, type TaskFilter, verbs } from "./bulk";
import { Confirm, Dialog } from "./dialog";
import { JobProgress, JobState, useJob } from "./job-progress";
import { Table } from "./table";

interface Props {
	action: BulkAction;
	/** Tasks that it is about, in one job a filter. A redrive adds the state dead. */
	filter: TaskFilter | TaskFilter[];
	/** What it says above, such as "Redrive mail". */
	title: string;
	onClose: () => void;
}

const firstRate = 1000;

/**
 * BulkDialog does something to all tasks of a filter: the server counts them without changing one, their number is typed, and a job of the
 * server goes over them, which the dialog follows.
 */
export function BulkDialog({ action, filter, title, onClose }: Props) {
	const verb = verbs[action];
	const ns = useNamespace();
	const queries = useQueryClient();
	const [filters] = useState(() =>
		[filter].flat().map((f) => (action === "redrive" ? { ...f, state: "dead" as const } : f)),
	);
	const [ids] = useState(() => filters.map(() => newJobId(serverNow())));
	const [perSecond, setPerSecond] = useState(String(firstRate));
	const [force, setForce] = useState(false);
	const [priority, setPriority] = useState(5);
	const [begun, setBegun] = useState(false);
	const started = useRef(false);
	const body = { action: verb.action, ...(action === "reprioritise" ? { priority } : {}) };
	const dry = useQuery({
		queryKey: [ns, "bulk dry run", ids[0]],
		queryFn: async () => {
			const counts: BulkCount[] = [];
			for (const tasks of filters) {
				const { found } = await call(api.POST("/v1/bulk", { body: { ...body, filter: tasks, dry_run: true } }));
				if (found) counts.push(found);
			}
			return sumCounts(counts);
		},
		retry: false,
		staleTime: Number.POSITIVE_INFINITY,
		refetchOnWindowFocus: false,
	});
	if (begun) return <Follow ids={ids} title={title} onClose={onClose} />;
	const found = dry.data;
	const n = found?.count ?? 0;
	const r = Number(perSecond);
	const rateOk = Number.isInteger(r) && r >= 1 && r <= 1_000_000;
	return (
		<Confirm
			wide
			title={title}
			verb={verb.name}
			needs={verb.needs}
			what={
				<>
					<p>{verb.what}</p>
					{filters.map((f) => (
						<p key={filterText(f)} className="mono wrap">
							{filterText(f) || "all tasks of the namespace"}
						</p>
					))}
				</>
			}
			lost={verb.lost}
			reason
			type={n > 0 ? count(n) : undefined}
			blocked={!found || n === 0 || !rateOk}
			onConfirm={async (reason) => {
				for (const [i, tasks] of filters.entries())
					await call(
						api.POST("/v1/bulk", {
							body: { ...body, filter: tasks, id: ids[i]!, rate: r, reason, ...(force ? { force } : {}) },
						}),
					);
				started.current = true;
			}}
			onClose={() => {
				if (!started.current) return onClose();
				setBegun(true);
				queries.invalidateQueries();
			}}
		>
			{dry.error ? (
				<ReadFailed query={dry} what="The dry run" />
			) : found ? (
				<>
					<p aria-live="polite">
						<strong>
							{n === 0
								? "No task matches."
								: many(`${count(n)}${found.exact ? "" : "+"}`, "task matches", "tasks match")}
						</strong>
						{n === 0
							? null
							: found.exact
								? " (exact)"
								: " (looking took too long: there may be more, and the job does them too)"}
						{found.oldest && found.newest && n > 0 ? (
							<>
								, created from <When at={found.oldest} /> to <When at={found.newest} />
							</>
						) : null}
					</p>
					<Sample tasks={found.sample ?? []} all={n} />
				</>
			) : (
				<Loading what="the dry run" />
			)}
			<div className="field-row">
				<label className="field">
					<span>
						Tasks a second
						{rateOk && n > 0 ? <span className="dim"> · about {span(Math.max(1000, (n / r) * 1000))}</span> : null}
					</span>
					<input
						type="number"
						min={1}
						max={1_000_000}
						value={perSecond}
						aria-invalid={!rateOk}
						onChange={(e) => setPerSecond(e.target.value)}
					/>
				</label>
				{action === "reprioritise" ? (
					<label className="field">
						Priority, 9 first
						<input
							type="number"
							min={0}
							max={9}
							value={priority}
							onChange={(e) => setPriority(Math.max(0, Math.min(9, Number(e.target.value) || 0)))}
						/>
					</label>
				) : null}
				{action === "cancel" ? (
					<label className="check">
						<input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} />
						take running tasks from their workers at once
					</label>
				) : null}
			</div>
		</Confirm>
	);
}

/** Sample shows some of the tasks that were found. */
function Sample({ tasks, all }: { tasks: Schemas["Task"][]; all: number }) {
	const ns = useNamespace();
	if (tasks.length === 0) return null;
	return (
		<details>
			<summary>{tasks.length < all ? `${tasks.length} of them` : "Which"}</summary>
			<Table
				label="Tasks that were found"
				columns={[
					{
						id: "id",
						name: "id",
						cell: (t) => (
							<Link to="/$ns/tasks/$id" params={{ ns, id: t.id ?? "" }} target="_blank">
								<Id id={t.id} />
							</Link>
						),
					},
					{ id: "queue", name: "queue", cell: (t) => t.queue },
					{ id: "kind", name: "kind", cell: (t) => t.kind },
					{ id: "state", name: "state", cell: (t) => <State state={t.state} /> },
					{
						id: "error",
						name: "error",
						look: "wrap",
						cell: (t) => [t.error?.code, t.error?.message?.slice(0, 120)].filter(Boolean).join(" "),
					},
				]}
				rows={tasks}
				id={(t) => t.id}
			/>
		</details>
	);
}

/** Follow shows jobs that were begun, until the dialog is closed: they go on by themselves. */
function Follow({ ids, title, onClose }: { ids: string[]; title: string; onClose: () => void }) {
	return (
		<Dialog title={title} onClose={onClose} wide>
			{ids.map((id) => (
				<FollowOne key={id} id={id} onLeave={onClose} />
			))}
			<footer>
				<span className="dim">{ids.length === 1 ? "It goes on" : "They go on"} when this is closed.</span>
				<Button kind="main" onClick={onClose} data-first="">
					Close
				</Button>
			</footer>
		</Dialog>
	);
}

function FollowOne({ id, onLeave }: { id: string; onLeave: () => void }) {
	const ns = useNamespace();
	const { job, error, retry } = useJob(id);
	if (!job)
		return error ? (
			<Failed error={asApiError(error)} retry={() => retry()} what="The job" />
		) : (
			<Loading what="the job" />
		);
	return (
		<>
			<div className="panel-head">
				<p aria-live="polite">
					Job{" "}
					<Link to="/$ns/bulk/$id" params={{ ns, id }} onClick={onLeave} title="Its page, which can be sent to others">
						<Id id={id} />
					</Link>{" "}
					<JobState job={job} />
					{job.filter?.queue ? <span className="dim"> in {job.filter.queue}</span> : null}
				</p>
				{job.state === "running" ? <CancelJob id={id} /> : null}
			</div>
			<JobProgress job={job} />
		</>
	);
}

/** CancelJob ends a job before its end. */
export function CancelJob({ id }: { id: string }) {
	const [cancel, busy] = useAct({
		name: () => "Cancel the job",
		run: () => call(api.POST("/v1/bulk/{id}:cancel", { params: { path: { id } } })),
	});
	return (
		<Button needs="task:operate|admin" disabled={busy} onClick={() => cancel(undefined)}>
			Cancel the job
		</Button>
	);
}
