import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, call } from "../api/client";
import { asApiError } from "../api/errors";
import type { Value } from "../kv";
import { TaskLink } from "./links";

/**
 * KeyWriter leads from a value to the task that wrote it, and to the card of the commit where the completion wrote it. kept tells whether
 * the keyspace keeps writers: without that nothing is known of who wrote a key, and nothing is said.
 */
export function KeyWriter({ ns, value, kept }: { ns: string; value: Value; kept: boolean }) {
	const id = value.writer?.task ?? "";
	const query = useQuery({
		queryKey: ["effects", ns, id],
		enabled: id !== "",
		retry: false,
		queryFn: () => call(api.GET("/v1/tasks/{id}/effects", { params: { path: { id }, query: { ns } } })),
	});
	if (value.writer) {
		// A commit in mid-task has no card; a task may have gone while its keys stay.
		const gone = query.error && asApiError(query.error).code === "NOT_FOUND";
		return (
			<p>
				written by task <TaskLink ns={ns} id={id} />{" "}
				<span className="dim mono" title="Fencing token of the attempt that wrote it">
					token {value.writer.token}
				</span>
				{query.data && query.data.rev === value.rev ? (
					<>
						{" · "}
						<Link to="/$ns/tasks/$id/$tab" params={{ ns, id, tab: "effects" }}>
							all of its commit
						</Link>
					</>
				) : null}
				{gone ? <span className="dim"> · the task is not kept any more</span> : null}
			</p>
		);
	}
	if (!kept) return null;
	return <p className="dim">written from outside of a task, or before this keyspace kept writers</p>;
}
