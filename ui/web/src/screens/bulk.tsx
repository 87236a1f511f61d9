import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import { api, call } from "../api/client";
import { count } from "../format";
import { useNamespace } from "../namespace";
import { Empty, Id, Loading, Page, ReadFailed, When } from "../parts/basic";
import { actionName, type BulkJob, filterText, refusedOf } from "../parts/bulk";
import { type Column, Grid } from "../parts/grid";
import { JobState } from "../parts/job-progress";

const columns: Column<BulkJob>[] = [
	{ id: "id", name: "job", cell: (j) => <JobLink job={j} /> },
	{ id: "action", name: "does", cell: actionName },
	{ id: "state", name: "state", cell: (j) => <JobState job={j} /> },
	{
		id: "filter",
		name: "tasks",
		grow: true,
		cell: (j) => <span className="mono">{filterText(j.filter) || "all"}</span>,
	},
	{
		id: "done",
		name: "done",
		num: true,
		cell: (j) => `${count(j.done ?? 0)} / ${count(j.matched ?? 0)}${j.exact ? "" : "+"}`,
	},
	{ id: "refused", name: "refused", num: true, from: 600, cell: (j) => count(refusedOf(j)) },
	{ id: "by", name: "by", from: 900, cell: (j) => j.by },
	{ id: "reason", name: "reason", from: 1200, cell: (j) => j.reason || <span className="dim">–</span> },
	{ id: "started", name: "begun", from: 600, cell: (j) => <When at={j.started_at} /> },
	{ id: "end", name: "done", cell: (j) => <When at={j.ended_at ?? j.eta} /> },
];

function JobLink({ job }: { job: BulkJob }) {
	const ns = useNamespace();
	return (
		<Link to="/$ns/bulk/$id" params={{ ns, id: job.id ?? "" }}>
			<Id id={job.id} />
		</Link>
	);
}

const idOf = (j: BulkJob) => j.id ?? "";

/** Bulk lists the jobs that run, and those that ended within the last day. */
export function Bulk() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const query = useQuery({
		queryKey: [ns, "bulk"],
		queryFn: () => call(api.GET("/v1/bulk")),
		refetchInterval: 5000,
	});
	const open = useCallback(
		(j: BulkJob) => navigate({ to: "/$ns/bulk/$id", params: { ns, id: idOf(j) } }),
		[navigate, ns],
	);
	return (
		<Page title="Bulk jobs" name="Bulk jobs">
			<p className="dim">Jobs that run, and those that ended within the last 24 hours.</p>
			{query.error ? (
				<ReadFailed query={query} what="The jobs" />
			) : query.data ? (
				<Grid
					label="Bulk jobs"
					columns={columns}
					rows={query.data.jobs ?? []}
					id={idOf}
					onOpen={open}
					href={(j) => `/ui/${ns}/bulk/${idOf(j)}`}
					empty={
						<Empty command="millrace queue redrive mail --dry-run">
							No job. One begins with what is done to all tasks of a filter, such as a redrive of the dead letters.
						</Empty>
					}
				/>
			) : (
				<Loading what="the jobs" />
			)}
		</Page>
	);
}
