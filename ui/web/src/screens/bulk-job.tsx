import { Link, useParams } from "@tanstack/react-router";
import { asApiError } from "../api/errors";
import { count } from "../format";
import { useNamespace } from "../namespace";
import { Copy, Facts, Failed, Id, Loading, Page, Panel, When } from "../parts/basic";
import { actionName, filterText } from "../parts/bulk";
import { CancelJob } from "../parts/bulk-dialog";
import { JobProgress, JobState, useJob } from "../parts/job-progress";

/** BulkJob is one job: how far it is, what it refused, who began it and why. */
export function BulkJob() {
	const ns = useNamespace();
	const { id = "" } = useParams({ strict: false });
	const { job, error, retry } = useJob(id);
	return (
		<Page
			name={`Job ${id}`}
			title={
				<>
					Job <Id id={id} /> {job ? <JobState job={job} /> : null}
				</>
			}
			actions={
				<>
					{job?.state === "running" ? <CancelJob id={id} /> : null}
					<Copy text={() => location.href}>copy link</Copy>
				</>
			}
		>
			{job ? (
				<>
					<Panel title="Progress">
						<JobProgress job={job} />
					</Panel>
					<Panel title={`What it does: ${actionName(job)}`}>
						<p className="mono wrap">{filterText(job.filter) || "all tasks of the namespace"}</p>
						<p>
							<Link to="/$ns/tasks" params={{ ns }} search={{ q: filterText(job.filter) }}>
								The tasks that match now
							</Link>
						</p>
						<Facts
							items={[
								["begun by", job.by ?? "–"],
								["reason", job.reason || "–"],
								["begun", <When key="begun" at={job.started_at} full />],
								["ended", <When key="ended" at={job.ended_at} full />],
								["at most", `${count(job.rate)}/s in each partition`],
								...(job.action === "prioritize" ? [["priority", String(job.priority ?? 0)] as [string, string]] : []),
								...(job.force
									? [["force", "running tasks are taken from their workers at once"] as [string, string]]
									: []),
								["rows looked at", count(job.looked ?? 0)],
							]}
						/>
					</Panel>
				</>
			) : error ? (
				<Failed error={asApiError(error)} retry={() => retry()} what="The job" />
			) : (
				<Loading what="the job" />
			)}
		</Page>
	);
}
