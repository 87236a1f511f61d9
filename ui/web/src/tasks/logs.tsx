import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { api, call, type Schemas } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { clock, count, many, parseTime, timeOfDay, visible } from "../format";
import { Button, Copy, Empty, Failed, Loading } from "../parts/basic";
import { useSettings } from "../settings";
import type { Task } from "./filter";

type Line = Schemas["LogLine"];

/** A log that is followed is asked for each of these milliseconds. */
const every = 2000;

interface Log {
	lines: Line[];
	dropped: number;
	last: number;
	read: boolean;
}

/** useLog reads the log of a task to its end, and goes on while the task can get lines. */
function useLog(ns: string, id: string, follows: boolean): [Log, ApiError | undefined, () => void] {
	const [log, setLog] = useState<Log>({ lines: [], dropped: 0, last: 0, read: false });
	const [error, setError] = useState<ApiError>();
	const [tries, setTries] = useState(0);
	const last = useRef(0);
	useEffect(() => {
		let gone = false;
		let timer: ReturnType<typeof setTimeout> | undefined;
		const read = async () => {
			try {
				if (!document.hidden)
					for (let more = true; more && !gone; ) {
						const query = { ns, after: last.current, limit: 1000 };
						const answer = await call(api.GET("/v1/tasks/{id}/logs", { params: { path: { id }, query } }));
						if (gone) return;
						last.current = Math.max(last.current, answer.last ?? 0);
						more = answer.more ?? false;
						const lines = answer.lines ?? [];
						setError(undefined);
						setLog((l) => ({
							lines: lines.length > 0 ? [...l.lines, ...lines].slice(-5000) : l.lines,
							dropped: answer.dropped ?? 0,
							last: last.current,
							read: true,
						}));
					}
				if (follows && !gone) timer = setTimeout(read, every);
			} catch (e) {
				if (!gone) setError(asApiError(e));
			}
		};
		read();
		return () => {
			gone = true;
			clearTimeout(timer);
		};
	}, [ns, id, follows, tries]);
	return [log, error, () => setTries((n) => n + 1)];
}

/** LogsPanel shows the log of a task, and follows it while the task runs. */
export function LogsPanel({ ns, task }: { ns: string; task: Task }) {
	const live = task.state === "running";
	const [attempt, setAttempt] = useState(0);
	const [find, setFind] = useState("");
	const [follow, setFollow] = useState(true);
	const [log, error, retry] = useLog(ns, task.id ?? "", live && follow);
	const { times } = useSettings();
	const box = useRef<HTMLElement>(null);
	const low = find.toLowerCase();
	const lines = log.lines.filter(
		(l) => (attempt === 0 || l.attempt === attempt) && (low === "" || (l.line ?? "").toLowerCase().includes(low)),
	);
	const attempts = [...new Set(log.lines.map((l) => l.attempt ?? 0))];
	const end = lines.at(-1)?.number;
	useLayoutEffect(() => {
		if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
	}, [end, follow]);
	if (error && !log.read) return <Failed error={error} retry={retry} what="The log" />;
	if (!log.read) return <Loading what="the log" />;
	if (log.lines.length === 0)
		return (
			<Empty>
				{log.dropped > 0
					? `${many(log.dropped, "line was", "lines were")} written, and no longer kept.`
					: "No line was written. Handlers write to the log of their task; what a command prints to its standard error comes here."}
			</Empty>
		);
	return (
		<section className="panel" aria-label="Log">
			<div className="bytes-head">
				<input
					type="search"
					aria-label="Show only lines with"
					placeholder="Show only lines with…"
					value={find}
					onChange={(e) => setFind(e.target.value)}
				/>
				{attempts.length > 1 ? (
					<label className="check">
						try
						<select value={attempt} onChange={(e) => setAttempt(Number(e.target.value))}>
							<option value={0}>all</option>
							{attempts.map((n) => (
								<option key={n} value={n}>
									{n}
								</option>
							))}
						</select>
					</label>
				) : null}
				<Button aria-pressed={follow} onClick={() => setFollow(!follow)}>
					{follow ? (live ? "following" : "at its end") : "follow"}
				</Button>
				<span className="dim">
					{many(lines.length, "line")}
					{log.dropped > 0 ? ` · ${count(log.dropped)} older ones are not kept` : ""}
				</span>
				<Copy text={() => lines.map((l) => l.line).join("\n")}>copy</Copy>
			</div>
			{error ? <Failed error={error} retry={retry} what="The log" /> : null}
			<section
				className="bytes-body"
				ref={box}
				// biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard
				tabIndex={0}
				aria-label="Lines"
				onScroll={(e) => {
					const el = e.currentTarget;
					const atEnd = el.scrollHeight - el.scrollTop - el.clientHeight < 24;
					if (!atEnd && follow) setFollow(false);
				}}
			>
				{lines.map((l, i) => {
					const at = parseTime(l.at);
					const begins = l.attempt !== lines[i - 1]?.attempt;
					return (
						<div key={l.number} className={begins ? "log-line begins" : "log-line"}>
							<span className="dim" title={at === undefined ? undefined : clock(at, times)}>
								{at === undefined ? "" : timeOfDay(at, times)}
							</span>
							<span className="dim">{begins ? `try ${l.attempt}` : ""}</span>
							<span className="wrap">{visible(l.line ?? "")}</span>
						</div>
					);
				})}
			</section>
		</section>
	);
}
