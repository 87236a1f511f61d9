import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, call } from "../api/client";
import { clock, many, span, timeOfDay, visible } from "../format";
import { useNow } from "../now";
import { Copy, Loading, ReadFailed, Segments, State, When } from "../parts/basic";
import { Diff } from "../parts/diff-view";
import { WorkerLink } from "../parts/links";
import { useSettings } from "../settings";
import type { Task } from "./filter";
import { type Attempt, type Row, type Timeline, timeline } from "./timeline";
import { useAttempts } from "./use-task";

/** Glyphs at the end of an attempt. */
const ends: Record<string, string> = {
	completed: "✓",
	failed: "✕",
	timeout: "✕",
	crashed: "╳",
	snoozed: "◷",
	released: "↩",
	cancelled: "⊘",
};
const hues: Record<string, string> = {
	completed: "completed",
	failed: "dead",
	timeout: "dead",
	crashed: "dead",
	snoozed: "scheduled",
	released: "cancelled",
	cancelled: "cancelled",
};

const words = {
	queue: "ready, no worker had it",
	work: "a worker held it",
	lease: "lease left",
	wait: "not to run yet",
};

/** TimelinePanel shows what happened to a task: each attempt with its token, its lease and its waits. `chosen` is the attempt whose error is shown. */
export function TimelinePanel({ ns, task, chosen }: { ns: string; task: Task; chosen: number | undefined }) {
	const query = useAttempts(ns, task);
	const now = useNow();
	const { times } = useSettings();
	const answer = query.data;
	const attempts = useMemo(() => leased(answer?.attempts ?? [], task), [answer, task]);
	const line = useMemo(
		() => (answer ? timeline(task, attempts, answer.older ?? [], now) : undefined),
		[task, attempts, answer, now],
	);
	if (query.error && !line) return <ReadFailed query={query} what="The timeline" />;
	if (!line) return <Loading what="the timeline" />;
	const shown = choose(attempts, chosen);
	return (
		<>
			<section className="panel" aria-label="Timeline">
				<table className="lanes">
					<caption className="sr">
						What happened to the task, oldest first. Longer times are drawn shorter than they are.
					</caption>
					<thead>
						<tr>
							<th scope="col">time</th>
							<th scope="col">try</th>
							<th scope="col">worker</th>
							<th scope="col">token</th>
							<th scope="col" className="axis">
								<div>
									<span>{timeOfDay(line.from, times)}</span>
									<span title="Longer times are drawn shorter than they are">{span(line.to - line.from)}</span>
									<span>{timeOfDay(line.to, times)}</span>
								</div>
							</th>
							<th scope="col">outcome</th>
						</tr>
					</thead>
					<tbody>
						{line.rows.map((r) => (
							<Lane
								key={r.kind === "try" ? `try ${r.number}` : r.kind}
								ns={ns}
								task={task}
								row={r}
								line={line}
								shown={shown?.number}
							/>
						))}
					</tbody>
				</table>
				<Retired tokens={line.retired} />
			</section>
			{shown ? <AttemptPanel ns={ns} task={task} attempts={attempts} attempt={shown} /> : null}
		</>
	);
}

/** leased puts the lease that the task was told to have last into its running attempt: a renewal changes nothing else. */
function leased(attempts: Attempt[], task: Task): Attempt[] {
	const last = attempts.at(-1);
	if (!last || last.end || task.state !== "running" || !task.lease_until || last.number !== task.attempt)
		return attempts;
	return [...attempts.slice(0, -1), { ...last, lease_until: task.lease_until }];
}

/** choose is the attempt whose details are shown: the one that is asked for, else the last with an error. */
export function choose(attempts: readonly Attempt[], chosen: number | undefined): Attempt | undefined {
	return attempts.find((a) => a.number === chosen) ?? attempts.findLast((a) => a.error);
}

function Lane({
	ns,
	task,
	row: r,
	line,
	shown,
}: {
	ns: string;
	task: Task;
	row: Row;
	line: Timeline;
	shown: number | undefined;
}) {
	const { times } = useSettings();
	const isTry = r.kind === "try";
	const running = isTry && r.outcome === undefined;
	const hue = isTry ? (running ? "running" : (hues[r.outcome ?? ""] ?? "cancelled")) : r.state;
	const end = isTry ? r.bars.findLast((b) => b.kind === "work")?.to : undefined;
	return (
		<tr className={isTry && r.number === shown ? "shown" : undefined}>
			<td title={r.at === undefined ? undefined : clock(r.at, times)}>
				{r.at === undefined ? "" : timeOfDay(r.at, times)}
			</td>
			<th scope="row">
				{isTry ? (
					<Link
						to="/$ns/tasks/$id"
						params={{ ns, id: task.id ?? "" }}
						search={{ attempt: String(r.number) }}
						replace
						aria-current={r.number === shown ? "true" : undefined}
					>
						try {r.number}
					</Link>
				) : null}
			</th>
			<td className="who">{isTry ? <WorkerLink ns={ns} worker={r.worker} /> : null}</td>
			<td className="mono">
				{isTry ? (
					r.token ? (
						<s title={`token ${r.token} is retired`}>{r.token}</s>
					) : (
						<span title="The token of a lease that is held is its worker's alone">···</span>
					)
				) : null}
			</td>
			<td className={`track hue-${hue}`}>
				{r.bars.map((b) => {
					const left = line.place(b.from);
					return (
						<span
							key={b.kind + b.from}
							className={`lane-${b.kind}`}
							style={{ left: `${left * 100}%`, width: `${(line.place(b.to) - left) * 100}%` }}
							title={`${words[b.kind]}: ${span(b.to - b.from)}`}
						/>
					);
				})}
				{end === undefined ? null : (
					<span className="lane-end" style={{ left: `${line.place(end) * 100}%` }} aria-hidden="true">
						{running ? "▶" : (ends[(r as { outcome?: string }).outcome ?? ""] ?? "·")}
					</span>
				)}
			</td>
			<td className="says wrap">
				{isTry ? (
					<>
						<State state={running ? "running" : hueState(r.outcome)}>
							{running ? "running" : r.says.split(" ")[0]}
						</State>
						{running ? <Lease line={line} task={task} /> : ` ${visible(r.says.split(" ").slice(1).join(" "))}`}
						{r.after ? <span className="dim"> · {r.after}</span> : null}
					</>
				) : r.kind === "now" ? (
					<>
						<State state={r.state} /> {r.says === r.state ? "" : r.says}
					</>
				) : r.kind === "ended" ? (
					<>
						<State state={r.state}>{r.says.split(/[ :]/)[0]}</State>
						{visible(r.says.slice(r.says.split(/[ :]/)[0]!.length))}
					</>
				) : (
					<span className={r.kind === "older" ? "dim" : undefined}>{r.says}</span>
				)}
			</td>
		</tr>
	);
}

function hueState(outcome: string | undefined): string {
	return outcome === "timeout" ? "failed" : (outcome ?? "");
}

/** Lease counts down on the server's clock. */
function Lease({ line, task }: { line: Timeline; task: Task }) {
	const now = useNow();
	const lease = line.lease;
	if (!lease) return null;
	const left = lease.until - now;
	const part = lease.all ? Math.max(0, Math.min(1, left / lease.all)) : 0;
	return (
		<>
			{" "}
			<span className="meter">
				{left > 0 ? (
					<>
						lease {span(left)} left{" "}
						<svg viewBox="0 0 40 8" width="40" height="8" aria-hidden="true">
							<rect className="all" width="40" height="8" rx="2" />
							<rect className="used" width={40 * part} height="8" rx="2" />
						</svg>
					</>
				) : (
					<strong>lease was over {span(-left)} ago: the server takes the task back</strong>
				)}
			</span>
			{lease.renewed === undefined ? null : (
				<span className="dim"> renewed {span(Math.max(0, now - lease.renewed))} ago</span>
			)}
			{task.progress?.percent === undefined ? null : ` · ${task.progress.percent} %`}
		</>
	);
}

/** Retired says what tokens are for, where there are some. */
function Retired({ tokens }: { tokens: string[] }) {
	if (tokens.length === 0) return null;
	const list =
		tokens.length === 1
			? `Token ${tokens[0]} is`
			: tokens.length <= 4
				? `Tokens ${tokens.slice(0, -1).join(", ")} and ${tokens.at(-1)} are`
				: `Tokens ${tokens[0]} to ${tokens.at(-1)} of this task are`;
	return <p className="dim">{list} retired: a late settle with one changes nothing (LEASE_LOST).</p>;
}

/** AttemptPanel shows an attempt: its error with the stack, what differs from the error before, and where else the error is. */
function AttemptPanel({
	ns,
	task,
	attempts,
	attempt: a,
}: {
	ns: string;
	task: Task;
	attempts: readonly Attempt[];
	attempt: Attempt;
}) {
	const [compare, setCompare] = useState(false);
	const text = errorText(a);
	const before = attempts.findLast((x) => (x.number ?? 0) < (a.number ?? 0) && x.error);
	const same = before && errorText(before) === text;
	return (
		<section className="panel" aria-label={`Try ${a.number}`}>
			<div className="panel-head">
				<h2>
					{a.error ? "Error of try" : "Try"} {a.number}
				</h2>
				<span className="dim">
					{a.index && a.index !== "0" ? <>entry {a.index} · </> : null}
					{a.session ? (
						<>
							session <span className="mono">{a.session}</span> ·{" "}
						</>
					) : null}
					began <When at={a.start} />
					{a.end ? (
						<>
							, ended <When at={a.end} />
						</>
					) : null}
				</span>
			</div>
			{a.error ? (
				<>
					<p>
						{a.error.code ? <strong className="mono">{visible(a.error.code)}</strong> : null}{" "}
						<span className="wrap">{visible(a.error.message ?? "")}</span>
					</p>
					<div className="bytes-head">
						{before ? (
							same ? (
								<span className="dim">The same error as in try {before.number}.</span>
							) : (
								<Segments
									label="What is shown of the error"
									items={["stack", "diff"]}
									now={compare ? "diff" : "stack"}
									name={(v) => (v === "diff" ? `diff with try ${before.number}` : v)}
									onPick={(v) => setCompare(v === "diff")}
								/>
							)
						) : null}
						<Copy text={text}>copy</Copy>
					</div>
					{compare && before && !same ? (
						<Diff
							from={cut(errorText(before))}
							to={cut(text)}
							label={`What differs between try ${before.number} and try ${a.number}`}
						/>
					) : a.error.stack ? (
						// biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard
						<section className="bytes-body" tabIndex={0} aria-label="Stack">
							<pre>{visible(a.error.stack)}</pre>
						</section>
					) : (
						<p className="dim">The worker reported no stack.</p>
					)}
				</>
			) : (
				<p className="dim">{a.end ? "This try reported no error." : "This try runs."}</p>
			)}
			{a.fingerprint ? <SameError ns={ns} task={task} fingerprint={a.fingerprint} /> : null}
		</section>
	);
}

/** errorText is an error as one text. */
function errorText(a: Attempt): string {
	return [[a.error?.code, a.error?.message].filter(Boolean).join(" "), a.error?.stack].filter(Boolean).join("\n");
}

/** Lines that are compared, at most. */
const compared = 500;

const cut = (s: string) => s.split("\n").slice(0, compared).join("\n");

/** SameError leads to all tasks with the same error. */
function SameError({ ns, task, fingerprint }: { ns: string; task: Task; fingerprint: string }) {
	const queue = task.queue ?? "";
	const query = useQuery({
		queryKey: ["errors", ns, queue, "", ""],
		queryFn: () => call(api.GET("/v1/errors", { params: { query: { ns, queue } } })),
	});
	const group = query.data?.errors?.find((e) => e.fingerprint === fingerprint);
	return (
		<p>
			{group ? (
				<>
					{many(group.count, "error")} like this in {queue} since <When at={group.first} />
					{" · "}
				</>
			) : null}
			<Link to="/$ns/tasks" params={{ ns }} search={{ q: `queue:${queue} error:${fingerprint}` }}>
				tasks whose last error it is
			</Link>
			{" · "}
			<Link to="/$ns/dead" params={{ ns }} search={{ queue }}>
				dead letters of {queue}
			</Link>{" "}
			<span className="dim mono" title="Fingerprint of the error">
				{fingerprint}
			</span>
		</p>
	);
}
