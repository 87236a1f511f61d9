import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { raw } from "../api/client";
import { asApiError } from "../api/errors";
import { size, visible } from "../format";
import { Facts, Failed, When } from "../parts/basic";
import { hex, textOf } from "../parts/bytes";
import { QueueLink, WorkerLink } from "../parts/links";
import { type Task, write } from "./filter";
import { WhyPanel } from "./why";

/** Bytes of a payload that a row shows. */
const head = 512;

/** Detail is what a row of the list shows below itself: why the task waits, its error, its labels, and the first bytes of its payload. */
export function Detail({ ns, task, gone }: { ns: string; task: Task; gone: boolean }) {
	const id = task.id ?? "";
	const query = useQuery({
		queryKey: ["payload head", ns, id],
		enabled: !gone,
		queryFn: () => raw(`/v1/tasks/${encodeURIComponent(id)}/payload?max=${head}`),
	});
	const got = query.data;
	const text = got && textOf(got.bytes, got.bytes.length >= got.size);
	const labels = Object.entries((task.labels ?? {}) as Record<string, string>);
	return (
		<>
			{gone ? <p className="warn">It is not there any more.</p> : <WhyPanel ns={ns} task={task} />}
			<Facts
				items={[
					[
						"id",
						<span key="i" className="mono">
							{id}
						</span>,
					],
					["queue", <QueueLink key="q" ns={ns} queue={task.queue} />],
					["created", <When key="c" at={task.created_at} />],
					["worker", <WorkerLink key="w" ns={ns} worker={task.worker} />],
					...labels.map(([k, v]): [string, React.ReactNode] => [
						k,
						<Link key={k} to="/$ns/tasks" params={{ ns }} search={{ q: write({ labels: { [k]: v } }) }}>
							{visible(v) || "(empty)"}
						</Link>,
					]),
				]}
			/>
			{task.error?.message && task.state !== "dead" ? (
				<p className="wrap">
					<strong className="mono">{visible(task.error.code ?? "")}</strong> {visible(task.error.message)}
				</p>
			) : null}
			{query.error ? <Failed error={asApiError(query.error)} what="The payload" /> : null}
			{got ? (
				<>
					<pre className="bytes-body">{text === undefined ? hex(got.bytes.subarray(0, 64)) : visible(text)}</pre>
					<p className="dim">
						{got.bytes.length < got.size ? `The first ${size(got.bytes.length)} of ${size(got.size)}` : size(got.size)}
						{got.type ? ` · ${got.type}` : ""} ·{" "}
						<Link to="/$ns/tasks/$id/$tab" params={{ ns, id, tab: "payload" }}>
							payload
						</Link>{" "}
						·{" "}
						<Link to="/$ns/tasks/$id/$tab" params={{ ns, id, tab: "effects" }}>
							effects
						</Link>
					</p>
				</>
			) : null}
		</>
	);
}
