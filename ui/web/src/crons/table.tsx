import { Link } from "@tanstack/react-router";
import { span, visible } from "../format";
import { useNamespace } from "../namespace";
import { State, When } from "../parts/basic";
import type { Column } from "../parts/column";
import { type Clocks, type Cron, inUTC, lastRuns, markOf, type Run, slotText, standing, stripOf, took } from "./cron";

export const cronId = (c: Cron) => c.name ?? "";

/** CronState says whether a cron fires. */
export function CronState({ cron }: { cron: Cron }) {
	const how = standing(cron);
	if (how === "paused") return <State state="paused" />;
	const [glyph, hue, word] = {
		on: ["●", "ready", "on"],
		waits: ["◌", "blocked", "a run waits"],
		over: ["⊘", "cancelled", "over"],
	}[how] as [string, string, string];
	return (
		<span className={`state hue-${hue}`}>
			<span aria-hidden="true">{glyph}</span> {word}
		</span>
	);
}

/** Outcome is what a run came to: a glyph, a word and a hue. */
export function Outcome({ run, short }: { run: Run; short?: boolean }) {
	const mark = markOf(run);
	const ms = took(run);
	return (
		<span className={`state hue-${mark.hue}`} title={visible(mark.word)}>
			<span aria-hidden="true">{mark.glyph}</span> {short ? mark.word.replace(/:.*/, "") : mark.word}
			{short && ms !== undefined ? ` ${span(ms)}` : ""}
		</span>
	);
}

/** SlotTime is a slot by the clocks that are wanted. */
export function SlotTime({ at, local, by }: { at: string | undefined; local: string | undefined; by: Clocks }) {
	if (!at) return <span className="dim">–</span>;
	const shown = by === "zone" && local ? local : inUTC(at);
	return (
		<time dateTime={at} title={slotText(by === "zone" ? inUTC(at) : local || at)}>
			{slotText(shown)}
		</time>
	);
}

/** The width of one run, and the height of the strip. */
const w = 5;
const h = 18;

/** RunStrip draws the last runs: how long each took, and what did not go well by its shape. */
export function RunStrip({ runs }: { runs: readonly Run[] }) {
	const { stripes, summary } = stripOf(runs);
	if (stripes.length === 0) return <span className="dim">–</span>;
	const first = lastRuns - stripes.length;
	return (
		<svg
			className="run-strip"
			viewBox={`0 0 ${lastRuns * w} ${h}`}
			width={lastRuns * w}
			height={h}
			role="img"
			aria-label={summary}
		>
			<title>{summary}</title>
			{stripes.map((s, i) => {
				const x = (first + i) * w;
				const tall = Math.round(s.height * (h - 2));
				const className = `hue-${s.hue}`;
				if (s.shape === "dot") return <circle key={s.number} className={className} cx={x + 2} cy={h - 3} r="1.5" />;
				if (s.shape === "cross")
					return <path key={s.number} className={`${className} cross`} d={`M${x} ${h - 9}l4 8m0-8l-4 8`} />;
				if (s.shape === "open")
					return <rect key={s.number} className={`${className} open`} x={x + 0.5} y={h - 9.5} width="3" height="8" />;
				return <rect key={s.number} className={className} x={x} y={h - 1 - tall} width="4" height={tall} />;
			})}
		</svg>
	);
}

function Name({ cron }: { cron: Cron }) {
	const ns = useNamespace();
	return (
		<Link to="/$ns/crons/$cron" params={{ ns, cron: cronId(cron) }}>
			{visible(cronId(cron))}
		</Link>
	);
}

/** columnsBy are the columns of a list of crons, with slots by the clocks that are wanted. */
export const columnsBy = (by: Clocks): Column<Cron>[] => [
	{ id: "name", name: "cron", grow: true, cell: (c) => <Name cron={c} /> },
	{ id: "state", name: "state", cell: (c) => <CronState cron={c} /> },
	{
		id: "next",
		name: "next",
		num: true,
		cell: (c) => (c.paused ? <span className="dim">–</span> : <When at={c.next_at} />),
	},
	{
		id: "schedule",
		name: "schedule",
		look: "cron-schedule",
		cell: (c) => (
			<span title={visible(`${c.schedule}: ${c.words ?? ""}`)}>
				<code>{visible(c.schedule)}</code> <span className="dim">{visible(c.words ?? "")}</span>
			</span>
		),
	},
	{ id: "zone", name: "zone", from: 1200, cell: (c) => c.zone || "UTC" },
	{
		id: "at",
		name: "next slot",
		from: 600,
		cell: (c) => <SlotTime at={c.paused ? undefined : c.next_at} local={c.next_local} by={by} />,
	},
	{
		id: "last",
		name: "last run",
		from: 600,
		cell: (c) => (c.last_run ? <Outcome run={c.last_run} short /> : <span className="dim">–</span>),
	},
	{ id: "runs", name: `last ${lastRuns}`, from: 900, cell: (c) => <RunStrip runs={c.recent ?? []} /> },
];
