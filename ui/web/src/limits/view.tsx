import { count } from "../format";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Meter } from "../parts/basic";
import { Icon } from "../parts/icon";
import { QueueLink, TaskLink } from "../parts/links";
import { type Limiter, most, type Standing, standingOf, usedText } from "./limiter";

/** Used shows how much of what a limiter lets run is taken. */
export function Used({ limiter: x, partitions }: { limiter: Limiter; partitions: number }) {
	return <Meter used={x.used ?? 0} all={most(x, partitions)} calm label={usedText(x, partitions)} />;
}

const standings: Record<Standing, { icon?: string; word: string; hue: string }> = {
	room: { word: "has room", hue: "ready" },
	full: { icon: "hourglass", word: "is full", hue: "blocked" },
	rate: { icon: "clock", word: "waits for its rate", hue: "blocked" },
	nothing: { icon: "stop", word: "bounds nothing", hue: "cancelled" },
};

/** LimiterState says whether a task could begin under a limiter, by a shape, a word and a hue. */
export function LimiterState({ limiter, partitions }: { limiter: Limiter; partitions: number }) {
	const s = standings[standingOf(limiter, partitions, useNow())];
	return (
		<span className={`state hue-${s.hue}`}>
			{s.icon ? <Icon name={s.icon} /> : <span aria-hidden="true">●</span>} {s.word}
		</span>
	);
}

/** Holders are the running tasks that hold a limiter, the first ten, each with its queue. */
export function Holders({ limiter: x }: { limiter: Limiter }) {
	const ns = useNamespace();
	const by = x.held_by ?? [];
	if (by.length === 0)
		return <p className="dim">{x.used ? "No task that you may see holds it." : "No running task holds it."}</p>;
	return (
		<ul>
			{by.map((h) => (
				<li key={h.task}>
					<TaskLink ns={ns} id={h.task ?? ""} /> <span className="dim">of</span> <QueueLink ns={ns} queue={h.queue} />
				</li>
			))}
			{by.length >= 10 ? <li className="dim">The first {count(by.length)} of those that run.</li> : null}
		</ul>
	);
}
