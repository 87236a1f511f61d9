import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { useAddress } from "../address";
import { api, call, type Schemas } from "../api/client";
import { asApiError } from "../api/errors";
import { curl } from "../curl";
import { count, many, parseTime, visible } from "../format";
import { usePartitions } from "../limits/quota-view";
import { pollEvery, useFollow } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Button, Copy, Empty, Facts, Loading, Meter, Panel, ReadFailed, Segments, Since, When } from "../parts/basic";
import { rateText } from "../parts/bounds";
import { type Column, Grid } from "../parts/grid";
import { useHeldRows } from "../parts/held-rows";
import { KeyDialog, PauseKeyDialog, useKeyPause } from "../parts/key-acts";
import { addressable, type KeySort, keySorts, type Lane, laneId, lanesOf, owedText, part } from "../parts/key-share";
import { LimiterLink, Names, TaskLink } from "../parts/links";
import { ListHead, usePrefix } from "../parts/list-head";
import { operate } from "../parts/queue-acts";
import { LimitsDialog, useConfig } from "./queue-settings";

type QueueStats = Schemas["QueueStats"];
type Use = Schemas["QueueUse"];

const none = <span className="dim">–</span>;

/** QueueLimits is what bounds a queue, how much of that is used, and who gets what: each line with what it waits for. */
export function QueueLimits({ queue, stats }: { queue: string; stats: QueueStats | undefined }) {
	const ns = useNamespace();
	const set = useAddress();
	const search = useSearch({ strict: false });
	const prefix = usePrefix();
	const sort: KeySort = keySorts.find((s) => s === search.sort) ?? "backlog";
	const status = useLiveStatus(ns);
	const [setting, setSetting] = useState<{ lane?: Lane } | undefined>();
	const [pausing, setPausing] = useState<string>();
	const query = useQuery({
		queryKey: [ns, "queue keys", queue, sort, prefix],
		queryFn: () =>
			call(
				api.GET("/v1/queues/{queue}/keys", {
					params: { path: { queue }, query: { sort, limit: 200, ...(prefix ? { prefix } : {}) } },
				}),
			),
		placeholderData: (before) => before,
		retry: false,
		// What a rate holds up goes on without that anything of the queue moves.
		refetchInterval: (q) => (status === "paused" ? false : hasMany(q.state.data?.use) ? 30_000 : pollEvery),
	});
	useFollow(movedOf(stats), query.refetch, hasMany(query.data?.use) ? 30_000 : 1000);
	const read = useMemo(() => query.data && lanesOf(query.data, sort), [query.data, sort]);
	const held = useHeldRows(
		read,
		laneId,
		`${ns} ${queue} ${sort} ${prefix} ${query.isPlaceholderData} ${query.isFetchedAfterMount}`,
	);
	const columns = useMemo(() => columnsOf(ns), [ns]);
	const many10k = query.error && asApiError(query.error).reason === "too_many_keys";
	const path = `/v1/queues/${encodeURIComponent(queue)}/keys?ns=${encodeURIComponent(ns)}&sort=${sort}${prefix ? `&prefix=${encodeURIComponent(prefix)}` : ""}`;
	return (
		<>
			<Limits queue={queue} stats={stats} use={query.data?.use} />
			<ListHead
				of="key"
				newer={held.newer}
				again="sort again"
				onShow={() => {
					held.show();
					query.refetch();
				}}
				end={
					<>
						<Waiting use={query.data?.use} />
						<span className="push actions">
							<Copy text={() => curl("GET", path)}>copy as curl</Copy>
							<Button needs="admin" onClick={() => setSetting({})}>
								Set a key…
							</Button>
						</span>
					</>
				}
			>
				<Segments label="Order of the keys" items={keySorts} now={sort} onPick={(s) => set({ sort: s })} />
			</ListHead>
			{many10k ? (
				<p className="warn">
					The queue has more than 10,000 keys: they are listed by name alone, or by what they begin with.{" "}
					<button type="button" className="quiet" onClick={() => set({ sort: "name" })}>
						By name
					</button>
				</p>
			) : (
				<ReadFailed query={query} what="The keys" />
			)}
			{query.isPending ? (
				<Loading what="the keys" />
			) : (
				<Grid
					label={`Keys of ${queue}`}
					columns={columns}
					rows={held.rows}
					id={laneId}
					stale={(l) => held.gone.has(laneId(l))}
					detail={(l) => (
						<Detail queue={queue} lane={l} onSet={() => setSetting({ lane: l })} onPause={() => setPausing(l.key)} />
					)}
					empty={
						query.error ? null : prefix ? (
							<Empty>No key begins with {visible(prefix)}.</Empty>
						) : (
							<Empty command={`millrace task create ${queue} '{"to":"ada"}' --key ada`}>
								The queue has no tasks. Those of one key wait in a line of their own, and lines are served in turn.
							</Empty>
						)
					}
				/>
			)}
			{query.data?.cursor ? (
				<p className="dim">There are more keys: type what they begin with.</p>
			) : read && read.length >= 200 ? (
				<p className="dim">The first 200 in this order.</p>
			) : null}
			{setting ? <KeyDialog queue={queue} lane={setting.lane} onClose={() => setSetting(undefined)} /> : null}
			{pausing !== undefined ? (
				<PauseKeyDialog queue={queue} name={pausing} onClose={() => setPausing(undefined)} />
			) : null}
		</>
	);
}

/** hasMany tells whether a list of the lines that wait is much work: the server looks at each of them. */
const hasMany = (use: Use | undefined) => (use?.waiting_keys ?? 0) > 1000;

/** movedOf changes whenever a task of the queue has come, begun or ended. */
function movedOf(s: QueueStats | undefined): string | undefined {
	return (
		s &&
		[s.created, s.blocked, s.scheduled, s.ready, s.running, s.completed_total, s.failed_total, s.crashed_total].join(
			" ",
		)
	);
}

/** Waiting says how many lines have tasks ready, and how many of them something of their own holds up. */
function Waiting({ use }: { use: Use | undefined }) {
	if (use?.waiting_keys === undefined) return null;
	const { waiting_keys: waiting, held_keys: held = 0 } = use;
	if (waiting === 0) return <span className="dim">no line has tasks ready</span>;
	return (
		<span>
			{many(waiting, "line")} {waiting === 1 ? "has" : "have"} tasks ready
			{held > 0 ? <strong className="hue-blocked"> · {count(held)} held up</strong> : null}
		</span>
	);
}

/** Limits are what bounds the queue, with how much of each is used. */
function Limits({ queue, stats, use }: { queue: string; stats: QueueStats | undefined; use: Use | undefined }) {
	const ns = useNamespace();
	const config = useConfig(queue);
	const partitions = usePartitions();
	const [edit, setEdit] = useState(false);
	const c = config.data;
	const running = use?.running ?? stats?.running ?? 0;
	const burst = c?.rate ? (c.rate.burst ?? c.rate.limit) : undefined;
	return (
		<Panel
			title="Limits"
			side={
				<Button needs="admin" onClick={() => setEdit(true)}>
					Edit…
				</Button>
			}
		>
			<ReadFailed query={config} what="The limits" />
			{c ? (
				<Facts
					items={[
						[
							"tasks at once",
							c.concurrency ? (
								<Meter
									key="c"
									used={running}
									all={c.concurrency}
									calm
									label={`${count(running)} of ${many(c.concurrency, "task")} run`}
								/>
							) : (
								`${many(running, "task")}, no bound`
							),
						],
						[
							"rate",
							c.rate ? (
								<span key="r">
									{rateText(c.rate)} ·{" "}
									<Meter
										used={use?.rate ?? 0}
										all={burst}
										calm
										label={`used of the burst: ${count(use?.rate ?? 0)} of ${count(burst)}`}
									>
										{count(use?.rate ?? 0)} used
									</Meter>
								</span>
							) : (
								"no bound"
							),
						],
						[
							"workers at once",
							c.max_workers ? (
								<Meter
									key="w"
									used={use?.workers ?? 0}
									all={c.max_workers}
									calm
									label={`${count(use?.workers ?? 0)} of ${many(c.max_workers, "worker")} have tasks`}
								/>
							) : (
								"no bound"
							),
						],
						["tasks of a key", c.per_key?.concurrency ? `${count(c.per_key.concurrency)} at once` : "no bound"],
						["rate of a key", rateText(c.per_key?.rate) ?? "no bound"],
						["order", c.order === "strict" ? "strict: one of a key at a time" : "fifo"],
						...(partitions > 1
							? ([
									[
										"holds for",
										c.pinned
											? "the namespace: its tasks are in partition 0"
											: `each of ${many(partitions, "partition")}`,
									],
								] as [string, ReactNode][])
							: []),
						[
							"limiters",
							c.limiters?.length ? (
								<Names key="l" of={c.limiters} one={(name) => <LimiterLink ns={ns} name={name} />} />
							) : (
								"none"
							),
						],
						[
							"fairness",
							c.fairness === "none" ? "none: the first of all tasks is next" : "lanes: keys by their weights",
						],
					]}
				/>
			) : config.error ? null : (
				<Loading what="the limits" />
			)}
			{edit ? <LimitsDialog queue={queue} onClose={() => setEdit(false)} /> : null}
		</Panel>
	);
}

/** WaitsFor is what holds a line up, and who does. */
function WaitsFor({ lane: l, ns }: { lane: Lane; ns: string }) {
	if (!l.ready) return none;
	const by = l.held_by ?? [];
	const holders = by.length > 0 ? <Holders ns={ns} ids={by} /> : null;
	switch (l.waits_for) {
		case "paused":
			return (
				<span className="hue-blocked">
					its pause{l.paused?.by ? ` by ${visible(l.paused.by)}` : ""}
					{l.paused?.reason ? `: ${visible(l.paused.reason)}` : ""}
				</span>
			);
		case "concurrency":
			return (
				<span className="hue-blocked">
					its limit of {count(l.limit)} {holders}
				</span>
			);
		case "order":
			return <span className="hue-blocked">the task before it {holders}</span>;
		case "rate":
			return (
				<span className="hue-blocked">
					its rate, <When at={l.until} />
				</span>
			);
		default:
			return <span className="dim">its turn</span>;
	}
}

function Holders({ ns, ids }: { ns: string; ids: readonly string[] }) {
	return (
		<span className="dim">
			<Names of={ids} one={(id) => <TaskLink ns={ns} id={id} />} />
		</span>
	);
}

const columnsOf = (ns: string): Column<Lane>[] => [
	{
		id: "key",
		name: "key",
		grow: true,
		cell: (l) =>
			l.unkeyed ? (
				<em>(no key)</em>
			) : (
				<>
					<span title={visible(l.key ?? "")}>{visible(l.key ?? "")}</span>
					{l.paused ? <span className="hue-blocked"> ‖ paused</span> : null}
				</>
			),
	},
	{ id: "ready", name: "ready", num: true, cell: (l) => count(l.ready) },
	{
		id: "running",
		name: "run / limit",
		num: true,
		cell: (l) => (
			<Meter
				used={l.running ?? 0}
				all={l.limit}
				calm
				label={`${count(l.running)} of ${many(l.limit ?? 0, "task")} run`}
			/>
		),
	},
	{ id: "weight", name: "weight", num: true, from: 600, cell: (l) => count(l.weight) },
	{
		id: "share",
		name: "share now / due",
		num: true,
		from: 600,
		cell: (l) => (
			<span title="of the tasks that run / by weight, of what is given out next">
				{part(l.share)} / {part(l.due)}
			</span>
		),
	},
	{ id: "owed", name: "behind its share", num: true, from: 1200, cell: (l) => owedText(l.owed) },
	{ id: "oldest", name: "oldest", num: true, cell: (l) => <Since at={l.oldest_ready} /> },
	{ id: "waits", name: "waits for", cell: (l) => <WaitsFor lane={l} ns={ns} /> },
];

/** Detail is what is set for a line, and what can be done to it. */
function Detail({
	queue,
	lane: l,
	onSet,
	onPause,
}: {
	queue: string;
	lane: Lane;
	onSet: () => void;
	onPause: () => void;
}) {
	const ns = useNamespace();
	const now = useNow();
	const [pause, busy] = useKeyPause(queue);
	const s = l.settings;
	if (l.unkeyed)
		return (
			<p className="dim">
				Tasks without a key share one line. It has weight 1, and the limits of the queue for each key.
			</p>
		);
	const key = l.key ?? "";
	const until = parseTime(l.paused?.until);
	return (
		<>
			<div className="selection">
				<Button needs="admin" disabled={!addressable(key)} onClick={onSet}>
					Set weight and limits…
				</Button>
				{l.paused ? (
					<Button needs={operate} disabled={busy || !addressable(key)} onClick={() => pause({ key, on: false })}>
						Resume
					</Button>
				) : (
					<>
						<Button needs={operate} disabled={busy || !addressable(key)} onClick={() => pause({ key, on: true })}>
							Pause
						</Button>
						<Button needs={operate} disabled={!addressable(key)} onClick={onPause}>
							Pause with a reason…
						</Button>
					</>
				)}
			</div>
			<Facts
				items={[
					[
						"key",
						<span key="k" className="mono wrap">
							{visible(key)}
						</span>,
					],
					["tasks not ended", count(l.tasks)],
					["weight", s?.weight ? `${s.weight}, set` : "1"],
					[
						"limit",
						s?.concurrency ? `${count(s.concurrency)}, set` : l.limit ? `${count(l.limit)}, the queue's` : "no bound",
					],
					["rate", rateText(s?.rate) ? `${rateText(s?.rate)}, set` : "the queue's"],
					["behind its share", owedText(l.owed)],
					...(l.paused
						? ([
								[
									"paused",
									<span key="p">
										<When at={l.paused.since} />
										{l.paused.by ? ` by ${visible(l.paused.by)}` : ""}
										{until !== undefined && until > now ? (
											<>
												, goes on <When at={l.paused.until} />
											</>
										) : null}
									</span>,
								],
							] as [string, ReactNode][])
						: []),
					...((l.held_by?.length ?? 0) > 0
						? ([["held by", <Holders key="h" ns={ns} ids={l.held_by!} />]] as [string, ReactNode][])
						: []),
				]}
			/>
		</>
	);
}
