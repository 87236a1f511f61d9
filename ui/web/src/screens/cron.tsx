import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { api, call, gone } from "../api/client";
import { usePausing, useTrigger } from "../crons/acts";
import {
	afterThis,
	type Clocks,
	type Cron as CronOf,
	clocks,
	comingOf,
	configText,
	isOpen,
	type Run,
	settingsOf,
	slotText,
	took,
} from "../crons/cron";
import { EditCron, useCronSource } from "../crons/form";
import { Changes, Slots, usePreview } from "../crons/preview";
import { CronState, Outcome, RunStrip, SlotTime } from "../crons/table";
import { curl } from "../curl";
import { many, span, visible } from "../format";
import { fromBase64 } from "../key-text";
import { pollEvery, useFollow, usePoll, useToldOne } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import {
	Button,
	Copy,
	copyText,
	Empty,
	Facts,
	Id,
	Loading,
	Page,
	Panel,
	ReadFailed,
	Segments,
	Since,
	When,
} from "../parts/basic";
import { BytesView } from "../parts/bytes";
import type { Column } from "../parts/column";
import { Confirm, Dialog } from "../parts/dialog";
import { LimiterLink, Names, QueueLink } from "../parts/links";
import { Menu } from "../parts/menu";
import { operate } from "../parts/queue-acts";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { useClocks } from "./crons";

/** Cron is one cron: when it is due, what it makes, and how its last runs went. */
export function Cron() {
	const ns = useNamespace();
	const { cron: name = "" } = useParams({ strict: false }) as { cron?: string };
	const query = useQuery({
		queryKey: [ns, "cron", name],
		queryFn: () => call(api.GET("/v1/crons/{cron}", { params: { path: { cron: name } } })),
		retry: false,
	});
	const told = useToldOne<CronOf>(ns, "crons", name, query);
	const [dialog, setDialog] = useState<"edit" | "json" | "delete">();
	const [trigger, triggering] = useTrigger();
	const [pause, pausing] = usePausing();
	const [by, setBy] = useClocks();
	const cron = query.error ? undefined : (told ?? query.data);
	const close = () => setDialog(undefined);
	const path = `/v1/crons/${encodeURIComponent(name)}?ns=${encodeURIComponent(ns)}`;
	return (
		<Page
			name={name}
			title={
				<>
					{visible(name)} {cron ? <CronState cron={cron} /> : null}
				</>
			}
			actions={
				cron ? (
					<>
						<Button kind="main" needs={operate} disabled={triggering} onClick={() => trigger(name)}>
							Trigger now
						</Button>
						<Button needs={operate} disabled={pausing} onClick={() => pause(cron)}>
							{cron.paused ? "Resume" : "Pause"}
						</Button>
						<Button needs="admin" onClick={() => setDialog("edit")}>
							Edit…
						</Button>
						<Menu
							label="⋯"
							title="More actions"
							items={[
								{ name: "Configuration as JSON", onPick: () => setDialog("json") },
								{ name: "Copy as curl", onPick: () => copyText(curl("GET", path)).then(() => toast("Command copied")) },
								{ name: "Delete…", needs: "admin", danger: true, onPick: () => setDialog("delete") },
							]}
						/>
					</>
				) : null
			}
		>
			<ReadFailed query={query} what="The cron" />
			{query.isPending ? <Loading what="the cron" /> : null}
			{cron ? (
				<>
					<CronFacts cron={cron} by={by} />
					<div className="selection">
						<span className="dim">slots by the clocks of</span>
						<Segments
							label="Slots by the clocks of"
							items={clocks}
							now={by}
							name={(c) => (c === "utc" ? "UTC" : cron.zone || "the cron")}
							onPick={setBy}
						/>
					</div>
					<div className="columns">
						<Coming cron={cron} />
						<Template name={name} cron={cron} />
					</div>
					<Runs name={name} cron={cron} by={by} />
				</>
			) : null}
			{dialog === "edit" ? <EditCron name={name} onClose={close} /> : null}
			{dialog === "json" ? <AsJson name={name} onClose={close} /> : null}
			{dialog === "delete" && cron ? <DeleteCron cron={cron} onClose={close} /> : null}
		</Page>
	);
}

const overlapWords: Record<string, string> = {
	skip: "skip the slot",
	allow: "run besides it",
	queue_one: "one run waits for its end",
	cancel_previous: "cancel that task first",
};
const catchUpWords: Record<string, string> = {
	one: "the last one runs",
	none: "none runs",
	all: "each runs, the last 100",
};

function CronFacts({ cron, by }: { cron: CronOf; by: Clocks }) {
	const items: [string, ReactNode][] = [
		["schedule", <code key="s">{visible(cron.schedule)}</code>],
		["in words", cron.words],
		["zone", cron.zone || "UTC"],
		[
			"next slot",
			cron.paused ? (
				"goes by while it is paused"
			) : cron.next_at ? (
				<span key="n">
					<SlotTime at={cron.next_at} local={cron.next_local} by={by} />{" "}
					<span className="dim">
						<When at={cron.next_at} />
					</span>
				</span>
			) : (
				"none is left"
			),
		],
		["last run", cron.last_run ? <Outcome key="l" run={cron.last_run} short /> : "none yet"],
		...(cron.waiting_at
			? ([["a run has waited", <Since key="w" at={cron.waiting_at} />]] as [string, ReactNode][])
			: []),
		["while the task before runs", overlapWords[cron.overlap ?? "skip"]],
		["slots that were missed", catchUpWords[cron.catch_up ?? "one"]],
		["jitter", cron.jitter ?? "none"],
		...(cron.start ? ([["not before", <When key="s" at={cron.start} full />]] as [string, ReactNode][]) : []),
		...(cron.end ? ([["not after", <When key="e" at={cron.end} full />]] as [string, ReactNode][]) : []),
		["runs ever", many(cron.runs, "run")],
		[
			`version ${cron.version}`,
			<span key="v">
				{cron.by ? `by ${visible(cron.by)} ` : ""}
				<When at={cron.updated_at} />
			</span>,
		],
	];
	return <Facts items={items} />;
}

/** Coming are the next slots of a cron, and what the next changes of the clocks do to them: the server computes them. */
function Coming({ cron }: { cron: CronOf }) {
	const said = usePreview(cron.schedule, cron.zone ?? "", afterThis(cron));
	const changes = said.preview?.dst ?? [];
	return (
		<Panel title="What comes next" side={cron.zone || "UTC"}>
			{said.error ? <ReadFailed query={{ error: said.error, refetch: said.retry }} what="What comes" /> : null}
			{cron.paused ? (
				<p className="dim">It is paused: its slots go by until it is resumed.</p>
			) : cron.next_at && !said.preview && !said.error ? (
				<Loading what="what comes" />
			) : (
				<Slots times={comingOf(cron, said.preview)} changes={changes} label="Next slots" />
			)}
			<Changes schedule={cron.schedule} zone={cron.zone ?? ""} changes={changes} />
		</Panel>
	);
}

/** Template is what the tasks of a cron are made of. */
function Template({ name, cron }: { name: string; cron: CronOf }) {
	const ns = useNamespace();
	const source = useCronSource(name);
	useFollow(cron.version, source.refetch, 1000);
	const t = (source.data?.cron ?? cron).template;
	const bytes = useMemo(() => {
		if (!source.data) return undefined;
		const { payload } = source.data;
		if (payload !== undefined) return new TextEncoder().encode(payload);
		return fromBase64(source.data.cron.template.payload_base64 ?? "");
	}, [source.data]);
	const labels = Object.entries((t.labels ?? {}) as Record<string, string>);
	const some = (label: string, value: ReactNode): [string, ReactNode][] => (value ? [[label, value]] : []);
	return (
		<Panel title="The tasks that it makes">
			<Facts
				items={[
					["queue", <QueueLink key="q" ns={ns} queue={t.queue} />],
					["kind", t.kind || t.queue],
					["priority", t.priority ?? 0],
					...some("key", t.key),
					...some("cost", t.cost),
					...some("failures", t.max_attempts),
					...some("crashes", t.max_crashes),
					...some("lease", t.lease),
					...some("longest run", t.max_run),
					...some("tag", t.tag),
					...some(
						"limiters",
						t.limiters && <Names of={t.limiters} one={(name) => <LimiterLink ns={ns} name={name} />} />,
					),
					...some("labels", labels.map(([k, v]) => `${k}=${v}`).join(" ")),
					...some("headers", t.headers?.map((h) => h.name).join(" ")),
				]}
			/>
			<ReadFailed query={source} what="The payload" />
			{bytes ? <BytesView bytes={bytes} size={bytes.length} type={t.content_type ?? ""} name="payload" /> : null}
		</Panel>
	);
}

const runId = (r: Run) => r.number ?? 0;

/** Runs are the last runs of a cron, at most 100. */
function Runs({ name, cron, by }: { name: string; cron: CronOf; by: Clocks }) {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	const query = useQuery({
		queryKey: [ns, "cron runs", name],
		queryFn: () => call(api.GET("/v1/crons/{cron}/runs", { params: { path: { cron: name } } })),
	});
	const runs = query.data?.runs ?? [];
	// Of the last run the cron tells. Of those before it that have not ended nothing does.
	useFollow(`${cron.runs} ${cron.last_run?.outcome} ${cron.last_run?.state}`, query.refetch, 1000);
	usePoll(status !== "paused" && runs.slice(1).some(isOpen) ? pollEvery : false, query.refetch);
	const columns: Column<Run>[] = [
		{ id: "number", name: "run", num: true, cell: (r) => r.number },
		{
			id: "slot",
			name: "slot",
			cell: (r) => (
				<>
					<SlotTime at={r.slot} local={r.slot_local} by={by} />
					{r.by_hand ? <span className="dim"> by hand</span> : null}
				</>
			),
		},
		{ id: "outcome", name: "outcome", cell: (r) => <RunOutcome run={r} /> },
		{
			id: "task",
			name: "task",
			cell: (r) =>
				r.task ? (
					r.state ? (
						<Link to="/$ns/tasks/$id" params={{ ns, id: r.task }}>
							<Id id={r.task} />
						</Link>
					) : (
						<Id id={r.task} />
					)
				) : (
					<span className="dim">–</span>
				),
		},
		{
			id: "took",
			name: "took",
			num: true,
			cell: (r) => {
				const ms = took(r);
				return ms === undefined ? <span className="dim">–</span> : span(ms);
			},
		},
		{ id: "at", name: "made", from: 600, cell: (r) => <When at={r.at} /> },
	];
	return (
		<Panel title="Runs" side={<RunStrip runs={runs} />}>
			<ReadFailed query={query} what="The runs" />
			{query.isPending ? (
				<Loading what="the runs" />
			) : runs.length > 0 ? (
				<>
					<Table label={`Runs of ${name}`} columns={columns} rows={runs} id={runId} />
					{(cron.runs ?? 0) > runs.length ? (
						<p className="dim">
							The last {runs.length} of {many(cron.runs, "run")} are kept.
						</p>
					) : null}
				</>
			) : query.error ? null : (
				<Empty>It has not run yet. Its first slot is {slotText(cron.next_local || cron.next_at)}.</Empty>
			)}
		</Panel>
	);
}

/** RunOutcome is what a run came to, with what else is to be said of it. */
function RunOutcome({ run }: { run: Run }) {
	return (
		<>
			<Outcome run={run} />
			{run.error ? (
				<span className="wrap">
					{" "}
					<strong className="mono">{visible(run.error.code ?? "")}</strong> {visible(run.error.message ?? "")}
				</span>
			) : null}
			{run.passed ? (
				<span className="dim">
					{" "}
					after {run.passed >= 100 ? "100 or more slots" : many(run.passed, "slot")} passed over
				</span>
			) : null}
		</>
	);
}

function AsJson({ name, onClose }: { name: string; onClose: () => void }) {
	const source = useCronSource(name);
	const text = source.data ? configText(settingsOf(source.data.cron), source.data.payload) : "";
	return (
		<Dialog title={`Configuration of ${name}`} onClose={onClose} wide>
			{source.data ? (
				<div className="bytes-body">
					<pre>{visible(text)}</pre>
				</div>
			) : (
				<ReadFailed query={source} what="The configuration" />
			)}
			<footer>
				<Copy text={text}>copy</Copy>
				<Button kind="main" onClick={onClose} data-first="">
					Close
				</Button>
			</footer>
		</Dialog>
	);
}

function DeleteCron({ cron, onClose }: { cron: CronOf; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const name = cron.name ?? "";
	return (
		<Confirm
			title={`Delete the cron ${name}?`}
			what={<p>It makes no task any more. The tasks that it made stay.</p>}
			lost="The cron and the list of its runs cannot be brought back."
			verb="Delete the cron"
			needs="admin"
			onConfirm={async () => {
				await gone(
					api.DELETE("/v1/crons/{cron}", {
						params: { path: { cron: name }, header: { "If-Match": String(cron.version ?? "0") } },
					}),
				);
				// What is gone is not read again.
				await navigate({ to: "/$ns/crons", params: { ns } });
				queries.removeQueries({ predicate: (q) => q.queryKey[2] === name });
				queries.invalidateQueries();
			}}
			onClose={onClose}
		/>
	);
}
