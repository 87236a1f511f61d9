import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { api, call, type Schemas } from "../api/client";
import { count, many } from "../format";
import { useFollow } from "../live/follow";
import { useNamespace } from "../namespace";
import { write } from "../tasks/filter";
import { Loading, ReadFailed, Since, State } from "./basic";
import { type Column, Grid } from "./grid";
import { useHeldRows } from "./held-rows";
import { TaskLink } from "./links";
import { Newer } from "./list-head";

type Task = Schemas["Task"];

const columnsOf = (ns: string, queue: boolean): Column<Task>[] => [
	{ id: "id", name: "id", cell: (t) => <TaskLink ns={ns} id={taskId(t)} /> },
	...(queue ? [{ id: "queue", name: "queue", cell: (t: Task) => t.queue }] : []),
	{ id: "kind", name: "kind", cell: (t) => t.kind },
	{ id: "state", name: "state", cell: (t) => <State state={t.state} /> },
	{
		id: "why",
		name: "why or error",
		grow: true,
		cell: (t) =>
			[t.reason, t.error?.code, t.error?.message].filter(Boolean).join(" ") || <span className="dim">–</span>,
	},
	{ id: "try", name: "try", num: true, from: 600, cell: (t) => count(t.attempt ?? 0) },
	{ id: "worker", name: "worker", from: 900, cell: (t) => t.worker || <span className="dim">–</span> },
	{ id: "age", name: "age", num: true, cell: (t) => <Since at={t.created_at} /> },
];

const taskId = (t: Task) => t.id ?? "";
const most = 50;

/** LastTasks shows the tasks that were created last, of a queue or of a batch; the screen of tasks has all of them. */
export function LastTasks({
	of,
	label,
	empty,
	moved,
}: {
	of: { queue: string } | { batch: string };
	label: string;
	empty: ReactNode;
	/** Changes when the tasks have: then they are read again. */
	moved?: string;
}) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const q = write(of);
	const query = useQuery({
		queryKey: [ns, "last tasks", q],
		queryFn: () => call(api.GET("/v1/tasks", { params: { query: { ...of, order: "desc", limit: most } } })),
		refetchOnWindowFocus: false,
	});
	useFollow(moved, query.refetch, 2000);
	const held = useHeldRows(query.data?.tasks, taskId, `${ns} ${q} ${query.isFetchedAfterMount}`);
	const several = "batch" in of;
	const columns = useMemo(() => columnsOf(ns, several), [ns, several]);
	if (query.error) return <ReadFailed query={query} what="The tasks" />;
	if (!query.data) return <Loading what="the tasks" />;
	const thin = (query.data.tasks?.length ?? 0) < most && query.data.cursor;
	return (
		<>
			<p className="selection">
				{thin ? `Those of ${many(query.data.inspected, "task")} that were looked at.` : "The newest tasks."}{" "}
				<Link to="/$ns/tasks" params={{ ns }} search={{ q }}>
					All of them, with filters
				</Link>
				<Newer
					newer={held.newer}
					again="read again"
					onShow={() => {
						held.show();
						query.refetch();
					}}
				/>
			</p>
			<Grid
				label={label}
				columns={columns}
				rows={held.rows}
				id={taskId}
				onOpen={(t) => navigate({ to: "/$ns/tasks/$id", params: { ns, id: taskId(t) } })}
				href={(t) => `/ui/${ns}/tasks/${taskId(t)}`}
				// What newer ones pushed out of the page is there all the same.
				stale={(t) => held.newer === 0 && held.gone.has(taskId(t))}
				empty={empty}
			/>
		</>
	);
}
