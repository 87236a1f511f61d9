import { useQuery } from "@tanstack/react-query";
import { api, call } from "../api/client";
import { count, rate, span } from "../format";
import { useLiveStatus, useRows } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { type BulkJob, pace, refusedOf } from "./bulk";

/** useJob follows a bulk job: live while it runs, and asked for every 5 s where the stream fails. */
export function useJob(id: string) {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	const query = useQuery({
		queryKey: [ns, "bulk", id],
		queryFn: () => call(api.GET("/v1/bulk/{id}", { params: { path: { id } } })),
		refetchInterval: (q) => (status === "failing" && q.state.data?.state === "running" ? 5000 : false),
	});
	const asked = query.data;
	// The stream refuses what is not there, so it is asked for a job that is known to run.
	const live = useRows<BulkJob>(ns, asked?.state === "running" ? `bulk:${id}` : undefined)?.[0];
	const job = asked && live && (live.state !== "running" || handled(live) > handled(asked)) ? live : asked;
	return { job, error: query.error, retry: query.refetch };
}

function handled(j: BulkJob): number {
	return (j.done ?? 0) + refusedOf(j);
}

/** JobProgress shows how far a bulk job is, what it refused by code, its rate, and how long the rest takes. */
export function JobProgress({ job }: { job: BulkJob }) {
	const now = useNow();
	const { part, perSecond, rest } = pace(job, now);
	const refused = refusedOf(job);
	const all = job.matched ?? 0;
	const text = `${count(job.done ?? 0)} of ${count(all)}${job.exact ? "" : "+"} done`;
	return (
		<div className="job">
			<progress max={1} value={part ?? 0} aria-label={text}>
				{text}
			</progress>
			<p>
				<strong>
					{count(job.done ?? 0)} / {count(all)}
					{job.exact ? "" : "+"}
				</strong>
				{perSecond === undefined ? null : ` · ${rate(perSecond)}`}
				{rest === undefined ? null : ` · about ${span(Math.max(1000, rest))} left`}
				{refused > 0 ? ` · refused ${count(refused)} ` : null}
				{refused > 0 ? (
					<span className="dim">({(job.refused ?? []).map((r) => `${r.code} ${count(r.count)}`).join(", ")})</span>
				) : null}
			</p>
			{(job.refused ?? []).some((r) => r.code === "CHANGED") ? (
				<p className="dim">
					CHANGED: they were found before the start, and were in another state when their turn came.
				</p>
			) : null}
		</div>
	);
}

/** JobState says how a job is, by a glyph and a word. */
export function JobState({ job }: { job: BulkJob }) {
	const [glyph, word, hue] = {
		running: ["▶", "running", "running"],
		done: ["✓", "done", "completed"],
		stopped: ["⊘", "cancelled", "cancelled"],
	}[job.state ?? "running"] ?? ["?", job.state, "cancelled"];
	return (
		<span className={`state hue-${hue}`}>
			<span aria-hidden="true">{glyph}</span> {word}
		</span>
	);
}
