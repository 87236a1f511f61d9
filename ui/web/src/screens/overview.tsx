import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect, useState } from "react";
import { api, call, type Schemas } from "../api/client";
import { count, many, rate, visible } from "../format";
import { useFigures } from "../live/figures";
import { useNamespace } from "../namespace";
import { type Attention, headline, placeOf, wordOf } from "../parts/attention";
import { Empty, Facts, Failed, Loading, Page, Panel, Since, Spark } from "../parts/basic";
import { HistoryPanel } from "../parts/history";
import { columns, queueId } from "../parts/queue-table";
import { Table } from "../parts/table";

type Row = Schemas["Overview"];

/** Overview says whether anything needs a person, how fast things go, and which queues to look at first. */
export function Overview() {
	const ns = useNamespace();
	const { rows, error, retry } = useFigures<Row>(ns, "overview", async () => [await call(api.GET("/v1/overview"))]);
	const o = rows?.[0];
	return (
		<Page title="Overview" name="Overview">
			{o ? (
				<>
					<AttentionList overview={o} />
					<Rates overview={o} />
					{o.queues ? (
						<Panel
							title="Queues to look at first"
							side={
								<Link to="/$ns/queues" params={{ ns }}>
									{o.queue_count === undefined ? "all queues" : `all ${count(o.queue_count)}`}
								</Link>
							}
						>
							{o.queues.length > 0 ? (
								<Table label="Queues" columns={columns} rows={o.queues} id={queueId} />
							) : (
								<Empty command={`millrace task create mail '{"to":"ada"}'`}>A queue appears with its first task.</Empty>
							)}
						</Panel>
					) : null}
				</>
			) : error ? (
				<Failed error={error} retry={retry} what="The overview" />
			) : (
				<Loading what="the overview" />
			)}
			{o || error ? <HistoryPanel title="All queues" /> : null}
		</Page>
	);
}

/** AttentionList shows what needs a person, what began last first. It is spoken politely, at most every 10 s. */
function AttentionList({ overview: o }: { overview: Row }) {
	const ns = useNamespace();
	const list = o.attention;
	const spoken = useSpoken(list ? headline(list, o.rates?.completed) : "");
	if (!list) return null;
	return (
		<Panel
			title={list.length === 0 ? "Nothing needs you" : `Attention ${count(list.length)}${o.more_attention ? "+" : ""}`}
		>
			<p className="sr" role="status">
				{spoken}
			</p>
			{list.length === 0 ? (
				<p>
					<span className="hue-completed" aria-hidden="true">
						✓
					</span>{" "}
					Nothing needs you. {o.rates ? `${rate(o.rates.completed)} completed` : "No rates yet"}
					{o.oldest_ready ? (
						<>
							, the oldest ready task waits <Since at={o.oldest_ready} />
						</>
					) : (
						", no task waits"
					)}
					.
				</p>
			) : (
				<ul className="attention">
					{list.map((a) => (
						<Item key={`${a.kind} ${a.object}`} item={a} ns={ns} />
					))}
				</ul>
			)}
		</Panel>
	);
}

function Item({ item, ns }: { item: Attention; ns: string }) {
	const { glyph, hue, word } = wordOf(item.kind);
	const place = placeOf(item, ns);
	return (
		<li>
			<span className={`hue-${hue}`} title={word}>
				<span aria-hidden="true">{glyph}</span>
				<span className="sr">{word}</span>
			</span>
			<span className="wrap">
				<strong>{item.object}</strong> {visible(item.text ?? "")}
			</span>
			<span className="dim">
				for <Since at={item.since} />
			</span>
			{place ? (
				<Link className="as-button" {...(place.link as { to: string })}>
					{place.name}
				</Link>
			) : (
				<span />
			)}
		</li>
	);
}

/** useSpoken returns the newest text, at most every 10 s. */
function useSpoken(text: string): string {
	const [said, setSaid] = useState(text);
	useEffect(() => {
		const t = setTimeout(() => setSaid(text), 10_000);
		return () => clearTimeout(t);
	}, [text]);
	return said;
}

function Rates({ overview: o }: { overview: Row }) {
	const items: [string, ReactNode][] = [];
	if (o.rates) {
		items.push(["created", rate(o.rates.created)]);
		items.push([
			"completed",
			<span key="completed">
				{rate(o.rates.completed)} <Spark slots={30} values={o.spark} summary="completions in the last 15 min" />
			</span>,
		]);
		items.push(["failed", <Bad key="failed" n={o.rates.failed} />]);
		items.push(["crashed", <Bad key="crashed" n={o.rates.crashed} />]);
	}
	items.push(["ready", count(o.states?.ready)]);
	items.push(["dead", <Bad key="dead" n={o.states?.dead} whole />]);
	items.push(["oldest ready", <Since key="oldest" at={o.oldest_ready} />]);
	if (o.slots) items.push(["in hand", `${count(o.slots.used ?? 0)} / ${many(o.slots.all ?? 0, "slot")}`]);
	if (o.fsync_us) items.push(["fsync", `p50 ${fine(o.fsync_us.p50)} · p99 ${fine(o.fsync_us.p99)} ms`]);
	if (o.paused_queues) items.push(["paused", many(o.paused_queues, "queue")]);
	return <Facts items={items} figures />;
}

/** fine writes microseconds as milliseconds, with two digits that count. */
function fine(us: number | undefined): string {
	const ms = (us ?? 0) / 1000;
	return ms >= 10 ? count(Math.round(ms)) : String(Number(ms.toPrecision(2)));
}

function Bad({ n, whole }: { n: number | undefined; whole?: boolean }) {
	return <span className={n ? "hue-dead" : undefined}>{whole ? count(n ?? 0) : rate(n)}</span>;
}
