import { parseTime, span } from "../format";
import type { Task } from "./filter";

/** whyOf says in a few words why a task is where it is, or how it ended. now is the server's time in milliseconds. */
export function whyOf(t: Task, now: number): string {
	const error = [t.error?.code, t.error?.message?.split("\n")[0]].filter(Boolean).join(" ");
	const due = (at: string | undefined) => {
		const time = parseTime(at);
		if (time === undefined) return "later";
		return time > now ? `in ${span(time - now)}` : "now";
	};
	switch (t.state) {
		case "ready": {
			const since = parseTime(t.ready_at);
			return since === undefined ? "" : `waits ${span(Math.max(0, now - since))}`;
		}
		case "scheduled":
			if (t.reason === "retry") return `retry ${due(t.run_at)}${error ? ` after ${error}` : ""}`;
			if (t.reason === "snooze") return `snoozed, runs ${due(t.run_at)}`;
			return `runs ${due(t.run_at)}`;
		case "running": {
			if (t.cancel?.at) return `asked to stop${t.cancel.by ? ` by ${t.cancel.by}` : ""}`;
			const until = parseTime(t.lease_until);
			const lease =
				until === undefined
					? ""
					: until > now
						? `lease ${span(until - now)} left`
						: `lease over for ${span(now - until)}`;
			const p = t.progress;
			const done = p ? [p.percent === undefined ? "" : `${p.percent} %`, p.message].filter(Boolean).join(" ") : "";
			return [done, lease].filter(Boolean).join(" · ");
		}
		case "completed": {
			const start = parseTime(t.started_at);
			const end = parseTime(t.finished_at);
			return start === undefined || end === undefined ? "" : `took ${span(Math.max(0, end - start))}`;
		}
		case "dead":
			return [t.reason, error].filter(Boolean).join(" · ");
		case "cancelled":
			return [t.cancel?.by ? `by ${t.cancel.by}` : "", t.cancel?.reason].filter(Boolean).join(": ");
	}
	return "";
}

/** triesOf is how many failures a task has had, with the one that may come, of how many it may have. */
export function triesOf(t: Task): string {
	const n = (t.failures ?? 0) + (t.state === "running" || t.state === "completed" ? 1 : 0);
	return t.max_attempts ? `${n}/${t.max_attempts}` : String(n);
}
