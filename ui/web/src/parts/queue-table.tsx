import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { count, rate, visible } from "../format";
import { useNamespace } from "../namespace";
import { Since, Spark } from "./basic";
import type { Column } from "./column";
import { Icon } from "./icon";

type QueueStats = Schemas["QueueStats"];

/** QueueName is a link to the queue, with a sign where it is paused. */
function QueueName({ queue }: { queue: QueueStats }) {
	const ns = useNamespace();
	const p = queue.paused;
	return (
		<>
			<Link to="/$ns/queues/$queue" params={{ ns, queue: queue.queue ?? "" }}>
				{queue.queue}
			</Link>
			{p ? (
				<span
					className="hue-blocked"
					title={visible(["paused", p.by ? `by ${p.by}` : "", p.reason].filter(Boolean).join(" "))}
				>
					{" "}
					<Icon name="pause" /> <span className="sr">paused</span>
				</span>
			) : null}
		</>
	);
}

/** Workers says how many serve a queue, and warns where none does and tasks wait. */
function Serving({ queue }: { queue: QueueStats }) {
	if (queue.workers === undefined) return <span className="dim">–</span>;
	if (queue.workers === 0 && (queue.ready ?? 0) > 0)
		return (
			<span className="hue-dead" title="Tasks wait, and no worker takes them">
				<span aria-hidden="true">⚠</span> 0
			</span>
		);
	return count(queue.workers);
}

export const columns: Column<QueueStats>[] = [
	{ id: "queue", name: "queue", sort: "name", grow: true, cell: (q) => <QueueName queue={q} /> },
	{ id: "ready", name: "ready", num: true, sort: "ready", cell: (q) => count(q.ready) },
	{ id: "running", name: "run", num: true, cell: (q) => count(q.running) },
	{ id: "scheduled", name: "delayed", num: true, from: 900, cell: (q) => count(q.scheduled) },
	{ id: "blocked", name: "blocked", num: true, from: 1200, cell: (q) => count(q.blocked) },
	{
		id: "dead",
		name: "dead",
		num: true,
		sort: "dead",
		cell: (q) => (q.dead ? <span className="hue-dead">{count(q.dead)}</span> : "0"),
	},
	{ id: "oldest", name: "oldest", num: true, sort: "oldest", cell: (q) => <Since at={q.oldest_ready} /> },
	{ id: "in", name: "in", num: true, from: 600, cell: (q) => rate(q.rates?.created) },
	{ id: "out", name: "out", num: true, from: 600, sort: "rate", cell: (q) => rate(q.rates?.completed) },
	{
		id: "spark",
		name: "15 min",
		from: 900,
		cell: (q) => (
			<Spark
				slots={30}
				values={q.spark}
				summary={`${count((q.spark ?? []).reduce((a, b) => a + b, 0))} completed in 15 min`}
			/>
		),
	},
	{ id: "workers", name: "workers", num: true, from: 600, cell: (q) => <Serving queue={q} /> },
];

export const queueId = (q: QueueStats) => q.queue ?? "";
