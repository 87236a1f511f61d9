import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, call } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { ago, parseTime, visible } from "../format";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Loading, ReadFailed } from "../parts/basic";
import { type Change, changeText, halfDayBefore, markOfTime, type Preview, slotText, utcBeside } from "./cron";

/** A preview is asked for when nothing was typed for this many milliseconds. */
const pause = 250;

/** useLate is a value once it has not changed for a while. */
function useLate<T>(value: T): T {
	const [late, setLate] = useState(value);
	useEffect(() => {
		const t = setTimeout(() => setLate(value), pause);
		return () => clearTimeout(t);
	}, [value]);
	return late;
}

/** What the server says of a schedule. Nothing of it is computed here. */
interface Said {
	preview: Preview | undefined;
	error: ApiError | undefined;
	/** What is shown is of another schedule: the answer is on its way. */
	stale: boolean;
	retry: () => unknown;
}

/** usePreview asks the server when a schedule holds: the next slots after `from`, or after now. */
export function usePreview(schedule: string, zone: string, from?: string | undefined, on = true): Said {
	const ns = useNamespace();
	const asked = useLate(`${schedule.trim()}\n${zone.trim()}`);
	const [s = "", z = ""] = asked.split("\n");
	const query = useQuery({
		queryKey: [ns, "cron preview", s, z, from],
		enabled: on && s !== "",
		retry: false,
		queryFn: () =>
			call(
				api.POST("/v1/crons:preview", {
					body: { schedule: s, ...(z ? { zone: z } : {}), ...(from ? { from } : {}), count: 5 },
				}),
			),
		placeholderData: (before) => before,
		refetchOnWindowFocus: false,
	});
	const error = query.error ? asApiError(query.error) : undefined;
	const current = s === schedule.trim() && z === zone.trim();
	return {
		preview: error || s === "" ? undefined : query.data,
		error: current ? error : undefined,
		stale: !current || query.isFetching,
		retry: query.refetch,
	};
}

/** Slot is a slot with its zone, in UTC too, and how far it is. */
function Slot({ at, changes }: { at: string; changes: readonly Change[] }) {
	const now = useNow();
	const t = parseTime(at);
	const mark = markOfTime(at, changes);
	return (
		<li className={mark?.moved ? "warn" : undefined}>
			<time dateTime={at}>{slotText(at)}</time>
			{at.endsWith("Z") ? null : <span className="dim">{utcBeside(at)}</span>}
			<span className="dim">{t === undefined ? "" : ago(t, now)}</span>
			{mark ? (
				<strong className={mark.moved ? "hue-blocked" : "dim"}>
					<span aria-hidden="true">⚠</span> {visible(mark.text)}
				</strong>
			) : null}
		</li>
	);
}

/** Slots are the times of a preview, those marked that a change of the clocks concerns. */
export function Slots({
	times,
	changes,
	label,
}: {
	times: readonly string[];
	changes: readonly Change[];
	label: string;
}) {
	if (times.length === 0) return <p className="dim">There is no slot any more.</p>;
	return (
		<ol className="slots" aria-label={label}>
			{times.map((t) => (
				<Slot key={t} at={t} changes={changes} />
			))}
		</ol>
	);
}

/** Changes are the next changes of the clocks, each with what it does, and the slots of the days around it on demand. */
export function Changes({ schedule, zone, changes }: { schedule: string; zone: string; changes: readonly Change[] }) {
	const [open, setOpen] = useState<string>();
	if (changes.length === 0) return null;
	return (
		<ul className="changes" aria-label="Changes of the clocks">
			{changes.map((c) => (
				<li key={c.at}>
					<time dateTime={c.at}>{slotText(c.at)}</time> <span>{visible(changeText(c))}</span>{" "}
					<button
						type="button"
						className="quiet"
						aria-expanded={open === c.at}
						onClick={() => setOpen(open === c.at ? undefined : c.at)}
					>
						{open === c.at ? "hide that day" : "show that day"}
					</button>
					{open === c.at ? <Around schedule={schedule} zone={zone} change={c} /> : null}
				</li>
			))}
		</ul>
	);
}

/** Around are the slots of the days around a change of the clocks, as the server gives them. */
function Around({ schedule, zone, change }: { schedule: string; zone: string; change: Change }) {
	const { preview, error, retry } = usePreview(schedule, zone, halfDayBefore(change));
	if (error) return <ReadFailed query={{ error, refetch: retry }} what="The slots of that day" />;
	if (!preview) return <Loading what="the slots" />;
	return (
		<Slots times={preview.times ?? []} changes={preview.dst ?? []} label={`Slots around ${slotText(change.at)}`} />
	);
}

/** PreviewView is what a schedule means: in words, its next slots, and what the changes of the clocks do to it. */
export function PreviewView({ schedule, zone, said }: { schedule: string; zone: string; said: Said }) {
	if (schedule.trim() === "")
		return <p className="dim">The server says here in words when it is due, and lists the next times.</p>;
	if (said.error)
		return (
			<p className="hue-dead" role="alert">
				{said.error.field ? <code>{said.error.field}</code> : null} {visible(said.error.message)}
			</p>
		);
	if (!said.preview) return <Loading what="the preview" />;
	return (
		<div className={said.stale ? "preview stale" : "preview"} aria-busy={said.stale} role="status">
			<p>
				<strong>{visible(said.preview.words ?? "")}</strong>{" "}
				<span className="dim">{zone.trim() || "UTC"}, as the server says</span>
			</p>
			<Slots times={said.preview.times ?? []} changes={said.preview.dst ?? []} label="Next times" />
			<Changes key={`${schedule} ${zone}`} schedule={schedule} zone={zone} changes={said.preview.dst ?? []} />
		</div>
	);
}
