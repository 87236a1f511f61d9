// Tasks as they were read.
import { AfterOn, type Task } from "./gen/millrace/v1/task.js";
import { stateName } from "./job.js";
import { fromTimestamp } from "./time.js";

/** A task as it stands. */
export interface TaskInfo {
	id: string;
	queue: string;
	kind: string;
	state: string;
	reason: string;
	attempt: number;
	failures: number;
	crashes: number;
	snoozes: number;
	priority: number;
	tag: string;
	key: string;
	cost: number;
	/** That it names itself. */
	limiters: string[];
	/** Id of the batch that it was added to; empty: none. */
	batch: string;
	labels: Record<string, string>;
	createdAt: Date | undefined;
	finishedAt: Date | undefined;
	errorCode: string;
	errorMessage: string;
	progress: { percent: number; message: string } | undefined;
	/** The tasks that it was made to wait for. */
	after: Dependency[];
	/** How many of them a blocked task waits for. */
	pending: number;
	/** How many blocked tasks wait for this one. */
	dependents: number;
}

/** How a task stands that another one was made to wait for. */
export interface Dependency {
	id: string;
	/** Terminal: any end is enough. */
	on: "completed" | "terminal";
	/** Empty where it is not there any more. */
	state: string;
	/** The other one still waits for it. */
	waits: boolean;
}

/** Reads a task of the contract. */
export function taskInfo(t: Task): TaskInfo {
	return {
		id: t.id,
		queue: t.queue,
		kind: t.kind,
		state: stateName(t.state),
		reason: t.reason,
		attempt: t.attempt,
		failures: t.failures,
		crashes: t.crashes,
		snoozes: t.snoozes,
		priority: t.priority,
		tag: t.tag,
		key: t.key,
		cost: t.cost || 1,
		limiters: t.limiters,
		batch: t.batch,
		labels: t.labels,
		createdAt: fromTimestamp(t.createdAt),
		finishedAt: fromTimestamp(t.finishedAt),
		errorCode: t.error?.code ?? "",
		errorMessage: t.error?.message ?? "",
		progress: t.progress && { percent: t.progress.percent, message: t.progress.message },
		after: t.after.map((a) => ({
			id: a.id,
			on: a.on === AfterOn.TERMINAL ? "terminal" : "completed",
			state: a.state ? stateName(a.state) : "",
			waits: a.waits,
		})),
		pending: t.pending,
		dependents: t.dependents,
	};
}
