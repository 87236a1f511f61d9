import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { api, call } from "../api/client";
import { asApiError } from "../api/errors";
import { type Batch as BatchOf, endedText, type Follow, followsOf, openOf, parts, summaryOf } from "../batches/batch";
import { Bar, BatchState, hues } from "../batches/view";
import { curl } from "../curl";
import { count, many, tail, visible } from "../format";
import { pollEvery, useTold } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { Button, Copy, copyText, Empty, Facts, Failed, Id, Loading, Page, Panel, Since, When } from "../parts/basic";
import { BulkDialog } from "../parts/bulk-dialog";
import { Confirm } from "../parts/dialog";
import { LastTasks } from "../parts/last-tasks";
import { QueueLink, TaskLink } from "../parts/links";
import { Menu } from "../parts/menu";
import { operate } from "../parts/queue-acts";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { write } from "../tasks/filter";

/** useBatch reads a batch, and follows it live: after a redrive the counts of one that has finished move, too. */
function useBatch(id: string) {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	const query = useQuery({
		queryKey: [ns, "batch", id],
		queryFn: () => call(api.GET("/v1/batches/{id}", { params: { path: { id } } })),
		retry: false,
		refetchInterval: status === "failing" ? pollEvery : false,
	});
	const name = query.data ? `batch:${query.data.id}` : undefined;
	const { row, newer } = useTold<BatchOf>(ns, name, undefined, query);
	return { batch: query.error ? undefined : newer ? row : query.data, error: query.error, retry: query.refetch };
}

/** Batch is one batch: how far it is, what became of its tasks, and what it makes at the end. */
export function Batch() {
	const ns = useNamespace();
	const { batch: id = "" } = useParams({ strict: false }) as { batch?: string };
	const { batch, error, retry } = useBatch(id);
	const [dialog, setDialog] = useState<"seal" | "cancel" | "redrive">();
	const close = () => setDialog(undefined);
	const path = `/v1/batches/${encodeURIComponent(id)}?ns=${encodeURIComponent(ns)}`;
	const c = batch?.counts;
	return (
		<Page
			name={`Batch …${id.slice(-6)}`}
			title={
				<>
					<span>
						Batch <Id id={id} n={8} />
					</span>
					{batch ? <BatchState batch={batch} /> : null}
				</>
			}
			actions={
				batch ? (
					<>
						{batch.state === "open" ? (
							<Button kind="main" needs="task:create" onClick={() => setDialog("seal")}>
								Seal…
							</Button>
						) : null}
						<Button needs={operate} disabled={!c?.dead} onClick={() => setDialog("redrive")}>
							Redrive dead…
						</Button>
						{batch.state === "open" || batch.state === "sealed" ? (
							<Button kind="danger" needs={operate} onClick={() => setDialog("cancel")}>
								Cancel…
							</Button>
						) : null}
						<Menu
							label="⋯"
							title="More actions"
							items={[
								{ name: "Copy id", onPick: () => copyText(id).then(() => toast("Id copied")) },
								{ name: "Copy as curl", onPick: () => copyText(curl("GET", path)).then(() => toast("Command copied")) },
							]}
						/>
					</>
				) : null
			}
		>
			{error ? (
				asApiError(error).code === "NOT_FOUND" ? (
					<Empty>
						There is no batch {id} in namespace {ns}. One that has finished is kept for 7 days.
					</Empty>
				) : (
					<Failed error={asApiError(error)} retry={() => retry()} what="The batch" />
				)
			) : null}
			{!batch && !error ? <Loading what="the batch" /> : null}
			{batch ? (
				<>
					<BatchFacts batch={batch} />
					<div className="columns apart">
						<Panel title="What became of its tasks" side={`${endedText(c)} ended`}>
							<Counts batch={batch} />
						</Panel>
						<Panel title="What it makes" side="when it finishes">
							<Follows batch={batch} />
						</Panel>
					</div>
					<LastTasks
						of={{ batch: batch.id ?? id }}
						label="Newest tasks of the batch"
						moved={summaryOf(c)}
						empty={
							c?.total ? (
								<Empty>Its tasks were removed after their end. They stay counted.</Empty>
							) : (
								<Empty command={`millrace task create import '{"file":1}' --batch ${id}`}>
									No task was added to it{batch.state === "open" ? " yet" : ""}.
								</Empty>
							)
						}
					/>
				</>
			) : null}
			{dialog === "seal" && batch ? <Seal batch={batch} onClose={close} /> : null}
			{dialog === "cancel" && batch ? <Cancel batch={batch} onClose={close} /> : null}
			{dialog === "redrive" && batch ? (
				<BulkDialog
					action="redrive"
					title={`Redrive the dead of batch ${tail(id)}`}
					filter={{ batch: batch.id ?? id }}
					onClose={close}
				/>
			) : null}
		</Page>
	);
}

function BatchFacts({ batch: b }: { batch: BatchOf }) {
	const labels = Object.entries((b.labels ?? {}) as Record<string, string>);
	const items: [string, ReactNode][] = [
		[
			"id",
			<span key="id" className="mono">
				{b.id} <Copy text={b.id ?? ""} label="Copy the id" />
			</span>,
		],
		["opened", <When key="o" at={b.opened_at} />],
		["by", b.by || "–"],
	];
	if (b.sealed_at) items.push(["sealed", <When key="s" at={b.sealed_at} />]);
	if (b.finished_at) items.push(["finished", <When key="f" at={b.finished_at} />]);
	else items.push(["goes on for", <Since key="l" at={b.opened_at} />]);
	if (b.cancel?.at)
		items.push([
			"cancelled",
			<span key="c">
				<When at={b.cancel.at} />
				{b.cancel.by ? ` by ${visible(b.cancel.by)}` : ""}
				{b.cancel.reason ? `: ${visible(b.cancel.reason)}` : ""}
				{b.cancel.force ? ", with force" : ""}
			</span>,
		]);
	if (labels.length > 0)
		items.push([
			"labels",
			<span key="x" className="mono">
				{labels.map(([k, v]) => `${k}=${visible(v)}`).join(" ")}
			</span>,
		]);
	return <Facts items={items} />;
}

/** Counts are the tasks of a batch by what became of them, as a bar and as links to them. */
function Counts({ batch: b }: { batch: BatchOf }) {
	const ns = useNamespace();
	const batch = b.id ?? "";
	const c = b.counts;
	return (
		<>
			{c?.total ? <Bar batch={b} /> : <p className="dim">No task was added.</p>}
			<Facts
				items={parts.map((part): [string, ReactNode] => [
					part,
					<Link
						key={part}
						to="/$ns/tasks"
						params={{ ns }}
						title={part === "waiting" ? "blocked, scheduled or ready" : undefined}
						className={c?.[part] ? `hue-${hues[part]}` : ""}
						search={{ q: write(part === "waiting" ? { batch } : { batch, state: part }) }}
					>
						{count(c?.[part] ?? 0)}
					</Link>,
				])}
			/>
			{b.state === "cancelling" ? (
				<p>
					Its tasks are cancelled by a job:{" "}
					<Link to="/$ns/bulk" params={{ ns }}>
						Bulk jobs
					</Link>
				</p>
			) : null}
		</>
	);
}

/** Follows are the tasks that a batch makes at its end. */
function Follows({ batch: b }: { batch: BatchOf }) {
	const ns = useNamespace();
	const follows = followsOf(b);
	if (follows.length === 0) return <p className="dim">Nothing: it was opened without a task for its end.</p>;
	return (
		<>
			{b.refused ? (
				<p className="warn wrap">
					<strong className="mono">{visible(b.refused.code ?? "")}</strong> {visible(b.refused.message ?? "")}: the
					server tries again until it is made.
				</p>
			) : null}
			<Table<Follow>
				label="Tasks that it makes"
				columns={[
					{ id: "when", name: "when", cell: (f) => (f.when === "done" ? "at the end" : "if all completed") },
					{ id: "queue", name: "queue", cell: (f) => <QueueLink ns={ns} queue={f.queue} /> },
					{ id: "kind", name: "kind", from: 600, cell: (f) => f.kind },
					{
						id: "task",
						name: "task",
						cell: (f) => (f.task ? <TaskLink ns={ns} id={f.task} /> : <span className="dim">{f.says}</span>),
					},
				]}
				rows={follows}
				id={(f) => f.when}
			/>
		</>
	);
}

function Seal({ batch: b, onClose }: { batch: BatchOf; onClose: () => void }) {
	const queries = useQueryClient();
	const open = openOf(b.counts);
	return (
		<Confirm
			title={`Seal batch ${tail(b.id ?? "")}?`}
			what={
				<p>
					It gets no more tasks: a create that names it is refused.{" "}
					{open > 0
						? `It finishes when ${many(open, "task")} that ${open === 1 ? "has" : "have"} not ended ${open === 1 ? "has" : "have"}.`
						: "All of its tasks have ended, so it finishes at once."}
				</p>
			}
			lost="A sealed batch cannot be opened again."
			verb="Seal"
			needs="task:create"
			onConfirm={async () => {
				await call(api.POST("/v1/batches/{id}:seal", { params: { path: { id: b.id ?? "" } } }));
				queries.invalidateQueries();
			}}
			onClose={onClose}
		/>
	);
}

/** Up to this many tasks are cancelled without typing their number; a list of tasks has the same bound. */
const few = 100;

function Cancel({ batch: b, onClose }: { batch: BatchOf; onClose: () => void }) {
	const queries = useQueryClient();
	const [force, setForce] = useState(false);
	const [open] = useState(openOf(b.counts));
	const running = b.counts?.running ?? 0;
	return (
		<Confirm
			title={`Cancel batch ${tail(b.id ?? "")}?`}
			what={
				<p>
					It gets no more tasks, and {many(open, "task")} that {open === 1 ? "has" : "have"} not ended{" "}
					{open === 1 ? "is" : "are"} cancelled by a job of the server.
					{running > 0
						? force
							? ` Those that run (${count(running)}) are taken from their workers at once.`
							: ` The workers of those that run (${count(running)}) are told to stop.`
						: ""}
					{b.on_done ? ` Then the task in ${b.on_done.queue} is made.` : ""}
					{b.on_success ? ` That in ${b.on_success.queue} is not.` : ""}
				</p>
			}
			lost="What workers did so far outside of Millrace is not undone. The batch cannot go on."
			verb="Cancel the batch"
			needs={operate}
			reason
			type={open > few ? count(open) : undefined}
			onConfirm={async (reason) => {
				await call(
					api.POST("/v1/batches/{id}:cancel", {
						params: { path: { id: b.id ?? "" } },
						body: { ...(reason ? { reason } : {}), ...(force ? { force } : {}) },
					}),
				);
				queries.invalidateQueries();
			}}
			onClose={onClose}
		>
			{running > 0 ? (
				<label className="check">
					<input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} />
					do not wait for the workers
				</label>
			) : null}
		</Confirm>
	);
}
