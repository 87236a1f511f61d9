import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, call, type Schemas } from "../api/client";
import { clock, count, many, parseTime, size, tail, visible } from "../format";
import { bytesOf, toBase64 } from "../key-text";
import { Copy, Empty, Loading, ReadFailed, State, When } from "../parts/basic";
import { hex, textOf } from "../parts/bytes";
import { Icon } from "../parts/icon";
import { useSettings } from "../settings";
import { type Effect, keyOf, show } from "./effects";
import type { Task } from "./filter";
import { moved } from "./use-task";

/** Values are shown on the card where it has at most this many keys that are still current. */
const mostValues = 20;

/** EffectsPanel shows what the completion of a task changed: one card is one entry of the log, all of it or nothing. */
export function EffectsPanel({ ns, task, partition }: { ns: string; task: Task; partition: number | undefined }) {
	const id = task.id ?? "";
	const query = useQuery({
		queryKey: ["effects", ns, id, moved(task)],
		enabled: task.state === "completed",
		// Others overwrite what the task wrote.
		refetchInterval: 10_000,
		queryFn: () => call(api.GET("/v1/tasks/{id}/effects", { params: { path: { id }, query: { ns } } })),
	});
	if (task.state === "dead" || task.state === "cancelled")
		return (
			<Empty>
				Nothing was changed. A task that is {task.state} leaves no effects: they commit with the completion, or not at
				all.
			</Empty>
		);
	if (task.state !== "completed")
		return <Empty>Nothing yet: effects appear with the completion, all of them in one entry of the log.</Empty>;
	if (query.error && !query.data) return <ReadFailed query={query} what="The effects" />;
	if (!query.data) return <Loading what="the effects" />;
	if (!query.data.count && !query.data.checked)
		return (
			<Empty>
				This task completed without effects: it changed nothing but itself. A worker adds them to its completion, such
				as keys, refs, points and further tasks.
			</Empty>
		);
	return <CommitCard ns={ns} task={task} partition={partition} e={query.data} />;
}

function CommitCard({
	ns,
	task,
	partition,
	e,
}: {
	ns: string;
	task: Task;
	partition: number | undefined;
	e: Schemas["EffectsResponse"];
}) {
	const { times } = useSettings();
	const at = parseTime(e.completed_at);
	const ops = e.effects ?? [];
	const all = e.count ?? ops.length;
	const tasks = useTasks(ns, ops);
	const values = useValues(ns, ops);
	const standing = count1(ops);
	return (
		<section className="commit" aria-label="One commit">
			<header>
				<h2>one commit</h2>
				<span className="mono" title="Where the entry stands in the log">
					{partition === undefined ? "entry " : `p${partition}@`}
					{e.commit_index}
				</span>
				{e.rev && e.rev !== "0" ? <span className="mono">rev {e.rev}</span> : null}
				{at === undefined ? null : (
					<span title={clock(at, times)}>
						<When at={e.completed_at} full />
					</span>
				)}
				<span className="mono" title="Fencing token of the attempt that committed; it is retired">
					token {e.token}
				</span>
			</header>
			<table>
				<thead className="sr">
					<tr>
						<th scope="col">kind</th>
						<th scope="col">op</th>
						<th scope="col">target</th>
						<th scope="col">detail</th>
						<th scope="col">now</th>
					</tr>
				</thead>
				<tbody>
					<tr>
						<td className="noun hue-completed">
							<Icon name="check" /> task
						</td>
						<td>complete</td>
						<th scope="row" className="mono" title={task.id}>
							{tail(task.id ?? "", 6)}
						</th>
						<td className="dim">
							{task.result_size ? (
								<Link to="/$ns/tasks/$id/$tab" params={{ ns, id: task.id ?? "", tab: "result" }}>
									result {size(task.result_size)}
								</Link>
							) : (
								"no result"
							)}
						</td>
						<td />
					</tr>
					{ops.map((op, i) => (
						<OpRow key={i} ns={ns} op={op} created={tasks.get(op.key ?? "")} value={values.get(valueName(op))} />
					))}
				</tbody>
			</table>
			<footer>
				<span className="seal">all of it, or nothing</span>
				{e.checked ? (
					<span className="wrap">
						{e.checked === 1 ? "condition" : many(e.checked, "condition")} held:{" "}
						{(e.conditions ?? []).map((c, i) => (
							<Condition key={i} ns={ns} op={c} first={i === 0} />
						))}
						{(e.checked ?? 0) > (e.conditions ?? []).length ? " …" : ""}
					</span>
				) : null}
				<span className="dim">
					{all > ops.length ? `The first ${count(ops.length)} of ${count(all)} are shown${standing ? ": " : ""}` : ""}
					{standing}
				</span>
				<strong>{many(all, "op")}</strong>
			</footer>
		</section>
	);
}

/** count1 says how many of the ops that are shown still stand. */
function count1(ops: readonly Effect[]): string {
	const known = ops.filter((o) => o.now && o.now !== "unknown");
	if (known.length === 0) return "";
	const current = known.filter((o) => o.now === "current").length;
	return current === known.length ? "all still current" : `${current} of ${known.length} still current`;
}

function Condition({ ns, op, first }: { ns: string; op: Effect; first: boolean }) {
	const s = show(op, ns);
	const target = s.target || "(hidden)";
	return (
		<>
			{first ? "" : ", "}
			{s.link ? (
				<Link {...s.link} className="mono">
					{target}
				</Link>
			) : (
				<span className="mono">{target}</span>
			)}
		</>
	);
}

const nowHues: Record<string, string> = { current: "hue-completed", changed: "hue-blocked" };

const stands: Record<string, string> = { current: "✓", changed: "≠", gone: "∅" };

function OpRow({
	ns,
	op,
	created,
	value,
}: {
	ns: string;
	op: Effect;
	created: Task | undefined;
	value: string | undefined;
}) {
	const s = show(op, ns);
	const target = s.noun === "task" && s.target ? tail(s.target, 6) : s.target;
	const title = s.noun === "task" ? s.target : undefined;
	return (
		<tr>
			<td className="noun">
				<Icon name={s.icon} /> {s.noun}
			</td>
			<td>{s.verb}</td>
			<th scope="row" className="mono wrap" title={title}>
				{s.link ? <Link {...s.link}>{target}</Link> : target || <span className="dim">not yours to see</span>}
			</th>
			<td className="dim mono wrap" title={s.full || undefined}>
				{value === undefined ? null : <span className="hue-ready">→ {value} </span>}
				{s.detail}
				{s.full ? <Copy text={s.full} label="Copy what it points to" /> : null}
			</td>
			<td className={`now ${nowHues[op.now ?? ""] ?? "dim"}`}>
				{created ? (
					<State state={created.state}>{created.state} now</State>
				) : s.now ? (
					<>
						<span aria-hidden="true">{stands[op.now ?? ""]}</span> {s.now}
					</>
				) : null}
			</td>
		</tr>
	);
}

/** useTasks reads the tasks that the ops created, in one request. */
function useTasks(ns: string, ops: readonly Effect[]): Map<string, Task> {
	const ids = ops.filter((o) => o.op === "task_create" && o.key && o.now === "current").map((o) => o.key!);
	const query = useQuery({
		queryKey: ["tasks of a commit", ns, ids],
		enabled: ids.length > 0,
		refetchInterval: 10_000,
		queryFn: () => call(api.POST("/v1/tasks:get", { params: { query: { ns } }, body: { ids: ids.slice(0, 100) } })),
	});
	return useMemo(() => new Map((query.data?.tasks ?? []).map((t) => [t.id ?? "", t])), [query.data]);
}

function valueName(o: Effect): string {
	return `${o.space}\n${keyOf(o)}\n${o.rev}`;
}

/** useValues reads what the keys hold that still are as the commit left them: so it is what the commit wrote. */
function useValues(ns: string, ops: readonly Effect[]): Map<string, string> {
	const keys = ops.filter((o) => (o.op === "kv_put" || o.op === "kv_add") && o.now === "current" && !o.cut && o.space);
	const query = useQuery({
		queryKey: ["values of a commit", ns, keys.map(valueName)],
		enabled: keys.length > 0 && keys.length <= mostValues,
		staleTime: Number.POSITIVE_INFINITY,
		queryFn: async () => {
			const out = new Map<string, string>();
			for (const keyspace of new Set(keys.map((o) => o.space!))) {
				const of = keys.filter((o) => o.space === keyspace);
				const answer = await call(
					api.POST("/v1/kv/{keyspace}/get", {
						params: { path: { keyspace }, query: { ns } },
						body: { keys_base64: of.map((o) => toBase64(bytesOf(o.key, o.key_base64))) },
					}),
				);
				for (const [i, r] of (answer.results ?? []).entries())
					if (r.found && r.rev === of[i]?.rev) out.set(valueName(of[i]!), short(bytesOf(r.value, r.value_base64)));
			}
			return out;
		},
	});
	return query.data ?? new Map();
}

/** short is the head of a value. */
function short(bytes: Uint8Array): string {
	const head = bytes.subarray(0, 48);
	const text = textOf(head, bytes.length <= head.length);
	const said = text === undefined ? hex(head.subarray(0, 8)).slice(8, 31).trim() : visible(text.replaceAll("\n", "⏎"));
	return bytes.length > head.length ? `${said}… (${size(bytes.length)})` : said;
}
