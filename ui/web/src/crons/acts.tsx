import { useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { useAct } from "../act";
import { api, call } from "../api/client";
import { tail } from "../format";
import { useNamespace } from "../namespace";
import { serverNow } from "../now";
import { type Cron, markOf } from "./cron";

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** taskId makes the id of a task of 32 hexadecimal digits and a time, by which ids are in the order of their making. */
export function taskId(random: string, now: number): string {
	let n = (BigInt(now) << 80n) | (BigInt(`0x${random}`) & ((1n << 80n) - 1n));
	let out = "";
	for (let i = 0; i < 26; i++) {
		out = digits[Number(n & 31n)] + out;
		n >>= 5n;
	}
	return out;
}

/** useTrigger runs a cron now, and says what the run came to. The task has an id from here, so that asking again runs it once. */
export function useTrigger() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const ids = useRef(new Map<string, string>());
	return useAct({
		name: (cron: string) => `Run ${cron}`,
		run: (cron, request) => {
			const id = ids.current.get(request) ?? taskId(request, serverNow());
			ids.current.set(request, id);
			return call(api.POST("/v1/crons/{cron}:trigger", { params: { path: { cron } }, body: { id } }));
		},
		done: (run, cron) => {
			if (run.outcome !== "started")
				return {
					text: `${cron}: ${run.error ? `refused: ${run.error.code} ${run.error.message}` : markOf(run).word}.`,
				};
			const id = run.task ?? "";
			return {
				text: `${cron} runs by hand: task ${tail(id)}.`,
				action: { name: "Open", run: () => void navigate({ to: "/$ns/tasks/$id", params: { ns, id } }) },
			};
		},
	});
}

/** usePausing pauses a cron that is on, and lets one that is paused go on. Each can be undone. */
export function usePausing() {
	const [again] = useTurn();
	return useTurn((c) => void again(c));
}

function useTurn(undo?: (c: Pick<Cron, "name" | "paused">) => void) {
	return useAct({
		name: (c: Pick<Cron, "name" | "paused">) => `${c.paused ? "Resume" : "Pause"} ${c.name}`,
		run: (c) => {
			const params = { path: { cron: c.name ?? "" } };
			return c.paused
				? call(api.POST("/v1/crons/{cron}:resume", { params }))
				: call(api.POST("/v1/crons/{cron}:pause", { params }));
		},
		done: (_, c) => ({
			text: c.paused ? `${c.name} goes on.` : `${c.name} is paused: its slots go by. What runs goes on.`,
			...(undo
				? { action: { name: "Undo", run: () => undo({ ...(c.name ? { name: c.name } : {}), paused: !c.paused }) } }
				: {}),
		}),
	});
}
