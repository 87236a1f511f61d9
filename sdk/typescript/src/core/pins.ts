// Which queues are pinned. In a namespace of several partitions all tasks of a queue that is bounded or ordered as a whole are made in one. A
// client finds out by a refusal, or asks before it sends a commit that makes tasks. It may be behind, and the server judges.
import type { Fault } from "../errors.js";
import type { CommitRequest, TaskSpec } from "../gen/millrace/v1/task.js";
import { isMisplaced, type Pins, placeTask } from "./place.js";

/**
 * Takes in why a task of a queue was refused. It reports whether that was for its partition: then the task may be of another one by what is known
 * now. A refusal that names the task's partition, and not the queue as the reason, says that the queue is not pinned.
 */
export function repin(pins: Map<string, boolean>, f: Fault, queue: string): boolean {
	if (f.code !== "WRONG_PARTITION" || f.outcome === "unknown" || !f.details?.partition) return false;
	pins.set(f.details.queue || queue, f.reason === "queue_pinned");
	return true;
}

/** The tasks that a commit makes. */
export const tasksOf = (c: CommitRequest): TaskSpec[] =>
	c.ops.flatMap((o) => (o.op?.$case === "taskCreate" ? [o.op.value] : []));

/** The queues of a commit's tasks of which it is not known whether they are pinned, as far as that matters. */
export function unknownPins(c: CommitRequest, pins: Pins): string[] {
	if (c.fence) return []; // all of it is in the partition of the task
	return [...new Set(tasksOf(c).flatMap((s) => (s.tag || s.batch || pins.has(s.queue) ? [] : [s.queue])))];
}

/** Makes the ids again that were made for another partition than their queues say, and returns the new ones by the old ones. */
export function repinned(c: CommitRequest, made: ReadonlySet<TaskSpec>, n: number, pins: Pins): Map<string, string> {
	const moved = new Map<string, string>();
	for (const s of tasksOf(c)) {
		if (!made.has(s) || !isMisplaced(s, n, pins)) continue;
		const had = s.id;
		s.id = "";
		placeTask(s, n, -1, pins);
		moved.set(had, s.id);
	}
	return moved;
}

/** Has the tasks of a commit wait for those that have other ids now. */
export function follow(c: CommitRequest, moved: ReadonlyMap<string, string>): void {
	if (moved.size === 0) return;
	for (const s of tasksOf(c)) s.after = s.after.map((a) => ({ ...a, id: moved.get(a.id) ?? a.id }));
}
