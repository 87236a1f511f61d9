import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, call } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useLiveStatus, useTopic } from "../live/live";
import type { Task } from "./filter";

interface Read {
	task: Task | undefined;
	error: ApiError | undefined;
	/** Where the task was read: partition and index. */
	at: { partition: number; index: string } | undefined;
	retry: () => void;
}

/** useTask reads a task, and follows it live. What was read or told last counts. */
export function useTask(ns: string, id: string): Read {
	const status = useLiveStatus(ns);
	const live = useTopic(ns, `task:${id}`);
	const query = useQuery({
		queryKey: ["task", ns, id],
		queryFn: () => call(api.GET("/v1/tasks/{id}", { params: { path: { id }, query: { ns, view: "meta" } } })),
		refetchInterval: status === "failing" ? 5000 : false,
	});
	const row = live && ([...live.rows.values()][0] as Task | undefined);
	const [task, setTask] = useState<Task>();
	useEffect(() => {
		if (query.data) setTask(query.data);
	}, [query.data]);
	useEffect(() => {
		// Events carry no sizes, which do not change while the state is the same.
		if (row)
			setTask((was) => {
				const same = was?.id === row.id && was?.state === row.state;
				return same ? { ...row, ...sizes(was) } : row;
			});
	}, [row]);
	const { refetch } = query;
	const state = row?.state;
	useEffect(() => {
		if (state) refetch();
	}, [state, refetch]);
	const known = task?.id?.toUpperCase() === id.toUpperCase() ? task : query.data;
	return {
		task: known,
		error: query.error ? asApiError(query.error) : undefined,
		at: live?.at[0],
		retry: query.refetch,
	};
}

function sizes(t: Task | undefined): Partial<Task> {
	const out: Partial<Task> = {};
	if (t?.payload_size !== undefined) out.payload_size = t.payload_size;
	if (t?.result_size !== undefined) out.result_size = t.result_size;
	return out;
}

/** moved changes whenever a task has had an event that changes its attempts, its effects, or why it waits. */
export function moved(t: Task): string {
	return [t.state, t.attempt, t.failures, t.crashes, t.snoozes, t.redrives, t.run_at, t.worker, t.cancel?.at].join(" ");
}

/** useAttempts reads the last attempts of a task whenever they have changed. */
export function useAttempts(ns: string, task: Task) {
	const id = task.id ?? "";
	return useQuery({
		queryKey: ["attempts", ns, id, moved(task)],
		placeholderData: keepPreviousData,
		queryFn: () => call(api.GET("/v1/tasks/{id}/attempts", { params: { path: { id }, query: { ns } } })),
	});
}

/** useWhy reads why a task is where it is: when it has moved, and each 5 s while it is ready, as others go before it. */
export function useWhy(ns: string, task: Task, on: boolean) {
	const id = task.id ?? "";
	return useQuery({
		queryKey: ["why", ns, id, moved(task)],
		enabled: on,
		placeholderData: keepPreviousData,
		refetchInterval: task.state === "ready" ? 5000 : false,
		queryFn: () => call(api.GET("/v1/tasks/{id}/why", { params: { path: { id }, query: { ns } } })),
	});
}
