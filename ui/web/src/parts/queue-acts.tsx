import { useState } from "react";
import { useAct } from "../act";
import { api, call } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { many } from "../format";
import { serverNow } from "../now";
import { Confirm } from "./dialog";
import { Menu } from "./menu";

export const operate = "task:operate|admin";

interface Pause {
	queues: string[];
	/** The queues go on by themselves then; undefined: when they are resumed. */
	until?: string | undefined;
	reason?: string | undefined;
}

/** named writes the names of a few queues, or how many they are. */
function named(queues: readonly string[]): string {
	return queues.length <= 3 ? queues.join(", ") : many(queues.length, "queue");
}

/** each does a write to one queue after the other. It goes on after a refusal, and says which were refused; all of them: it throws. */
async function each(queues: readonly string[], write: (queue: string) => Promise<unknown>): Promise<string[]> {
	const failed: [string, ApiError][] = [];
	for (const q of queues)
		try {
			await write(q);
		} catch (e) {
			failed.push([q, asApiError(e)]);
		}
	if (failed.length === queues.length && failed[0]) throw failed[0][1];
	return failed.map(([q, e]) => `${q}: ${e.code}`);
}

const pause = ({ queues, until, reason }: Pause) =>
	each(queues, (queue) =>
		call(
			api.POST("/v1/queues/{queue}:pause", {
				params: { path: { queue } },
				body: { ...(until ? { until } : {}), ...(reason ? { reason } : {}) },
			}),
		),
	);

const resume = (queues: string[]) =>
	each(queues, (queue) => call(api.POST("/v1/queues/{queue}:resume", { params: { path: { queue } } })));

const but = (failed: string[]) => (failed.length > 0 ? `, but not ${failed.join(", ")}` : "");

/** useResume lets queues give out their tasks again. */
export function useResume() {
	return useAct({
		name: (queues: string[]) => `Resume ${named(queues)}`,
		run: resume,
		done: (failed, queues) => ({ text: `Resumed ${named(queues)}${but(failed)}.` }),
	});
}

/** usePause stops the giving out of tasks; its outcome offers to undo it. */
function usePause() {
	const [undo] = useResume();
	return useAct({
		name: (p: Pause) => `Pause ${named(p.queues)}`,
		run: pause,
		done: (failed, p) => ({
			text: `Paused ${named(p.queues)}${but(failed)}. What runs goes on.`,
			action: { name: "Undo", run: () => void undo(p.queues) },
		}),
	});
}

const later = (minutes: number) => new Date(serverNow() + minutes * 60_000).toISOString();

/** PauseMenu offers how long a queue is paused. */
export function PauseMenu({ queues }: { queues: string[] }) {
	const [act] = usePause();
	const [asks, setAsks] = useState(false);
	const item = (name: string, minutes?: number) => ({
		name,
		needs: operate,
		onPick: () => void act({ queues, until: minutes ? later(minutes) : undefined }),
	});
	return (
		<>
			<Menu
				label="Pause ▾"
				items={[
					item("until it is resumed"),
					item("for 15 minutes", 15),
					item("for 1 hour", 60),
					item("for 24 hours", 24 * 60),
					{ name: "with a reason…", needs: operate, onPick: () => setAsks(true) },
				]}
			/>
			{asks ? <PauseDialog queues={queues} onClose={() => setAsks(false)} /> : null}
		</>
	);
}

/** PauseDialog pauses queues until a time, for a reason. */
export function PauseDialog({ queues, onClose }: { queues: string[]; onClose: () => void }) {
	const [until, setUntil] = useState("");
	const [act] = usePause();
	const at = until ? new Date(until) : undefined;
	const bad = at && (Number.isNaN(at.getTime()) || at.getTime() <= serverNow());
	return (
		<Confirm
			title={`Pause ${named(queues)}`}
			what={
				<p>
					No task of {queues.length === 1 ? "the queue" : "these queues"} is given out. Tasks that run go on, and delays
					come due.
				</p>
			}
			verb="Pause"
			needs={operate}
			reason
			blocked={!!bad}
			onConfirm={(reason) => act({ queues, until: at?.toISOString(), reason })}
			onClose={onClose}
		>
			<label className="field">
				<span>
					Until, in this browser's time zone <span className="dim">(empty: until it is resumed)</span>
				</span>
				<input type="datetime-local" value={until} aria-invalid={!!bad} onChange={(e) => setUntil(e.target.value)} />
			</label>
		</Confirm>
	);
}
