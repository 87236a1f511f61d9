import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, call } from "../api/client";
import { asApiError } from "../api/errors";
import {
	type Alarm,
	alarms,
	certSoon,
	fromRows,
	type Link,
	type Loss,
	lagMost,
	ms,
	type Node,
	nameOf,
	partitionNames,
	replicaOf,
	type Shard,
	type Status,
	slowSync,
} from "../cluster-view";
import { count, many, rate, size } from "../format";
import { useLiveStatus, useTopic } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import {
	Button,
	Command,
	Failed,
	Loading,
	Meter,
	Page,
	Panel,
	ReadFailed,
	Since,
	useStable,
	When,
} from "../parts/basic";
import { Confirm } from "../parts/dialog";
import { Menu, type MenuItem } from "../parts/menu";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { useMay, useSession } from "../session";

/** What is asked before it is done. */
type Plan =
	| { verb: "drain" | "undrain" | "remove" | "promote"; node: Node }
	| { verb: "transfer"; shard: Shard }
	| { verb: "balance" | "cancel" | "finalize" };

/** Cluster shows the nodes, who leads which shard, and what a loss would stop. */
export function Cluster() {
	const may = useMay()("cluster");
	return may ? <Whole /> : <Partitions />;
}

/** useStatus reads the cluster: by the stream, and where that does not come, every five seconds. */
function useStatus(): { status: Status | undefined; error: unknown; again: () => void } {
	const ns = useNamespace();
	const topic = useTopic(ns, "cluster");
	const live = useLiveStatus(ns) === "live" && !!topic;
	const query = useQuery({
		queryKey: ["cluster"],
		queryFn: () => call(api.GET("/v1/cluster")),
		refetchInterval: live ? false : 5000,
	});
	const status = topic ? fromRows([...topic.rows.values()]) : query.data;
	return { status, error: topic ? undefined : query.error, again: () => void query.refetch() };
}

function Whole() {
	const { status: fresh, error, again } = useStatus();
	const status = useStable(fresh);
	const now = useNow();
	const [plan, setPlan] = useState<Plan>();
	const nodes = status?.nodes ?? [];
	const shards = status?.shards ?? [];
	const alone = status !== undefined && !status.cluster_id;
	const oldest = Math.min(...nodes.filter((n) => n.reachable).map((n) => n.knows_format ?? 0));
	const canFinalize = !alone && nodes.every((n) => n.reachable) && oldest > (status?.format ?? 0);
	return (
		<Page
			name="Cluster"
			title={
				<>
					Cluster
					{status ? (
						<span className="dim">
							{alone ? (
								"one node by itself"
							) : (
								<>
									{many(nodes.length, "node")} · {many(shards.length, "shard")} · as {nameOf(nodes, status.asked)} sees
									it ·{" "}
									<span className="mono" title={status.cluster_id}>
										{status.cluster_id?.slice(0, 8)}
									</span>
								</>
							)}
						</span>
					) : null}
				</>
			}
			actions={
				alone || !status ? null : (
					<>
						<Button needs="cluster" onClick={() => setPlan({ verb: "balance" })}>
							Balance…
						</Button>
						{canFinalize ? (
							<Button needs="cluster" onClick={() => setPlan({ verb: "finalize" })}>
								Finalize the upgrade…
							</Button>
						) : null}
					</>
				)
			}
		>
			{error ? <Failed error={asApiError(error)} retry={again} what="The cluster" /> : null}
			{!status && !error ? <Loading what="the cluster" /> : null}
			{status ? (
				<>
					<Alarms list={alarms(status, now)} nodes={nodes} alone={alone} />
					<Job status={status} onCancel={() => setPlan({ verb: "cancel" })} />
					<Nodes nodes={nodes} alone={alone} format={status.format} onPlan={setPlan} />
					<Shards
						shards={shards}
						nodes={nodes}
						alone={alone}
						onTransfer={(shard) => setPlan({ verb: "transfer", shard })}
					/>
					{alone ? null : (
						<div className="columns">
							<Links links={status.links} nodes={nodes} />
							<Losses losses={status.if_lost} nodes={nodes} shards={shards} />
						</div>
					)}
					{alone ? (
						<p className="dim">
							A server by itself does not grow into a cluster. One begins with <Command text="millrace cluster init" />
						</p>
					) : (
						<p className="dim">
							Another node joins with{" "}
							<Command text={`millrace cluster add n${Math.max(0, ...nodes.map((n) => n.id ?? 0)) + 1}`} />
						</p>
					)}
					{plan ? <Ask plan={plan} status={status} onClose={() => setPlan(undefined)} /> : null}
				</>
			) : null}
		</Page>
	);
}

function Alarms({ list, nodes, alone }: { list: Alarm[]; nodes: Node[]; alone: boolean }) {
	return (
		<div role="status" className="acts">
			{list.length === 0 ? (
				<p>
					<span className="state hue-completed">✓</span>{" "}
					{alone
						? "Nothing needs you: this node leads all of its shards."
						: `Nothing needs you: all ${nodes.length} nodes are reached, and every shard is led.`}
				</p>
			) : (
				list.map((a) => (
					<p key={a.text} className={a.bad ? "failed" : "warn"}>
						<span aria-hidden="true">{a.bad ? "✕" : "⚠"}</span> {a.text}
					</p>
				))
			)}
		</div>
	);
}

/** Job shows the change of membership that is under way, or the last one. */
function Job({ status, onCancel }: { status: Status; onCancel: () => void }) {
	const job = status.job;
	if (!job?.kind) return null;
	const under = job.state === "running" || job.state === "returning";
	return (
		<p className={under ? "warn" : "dim"}>
			Job {job.id}: {job.kind} {nameOf(status.nodes ?? [], job.node)}, {job.state}
			{job.ending ? `, and will end as ${job.ending}` : ""}
			{job.reason ? `: ${job.reason}` : ""}{" "}
			{under ? (
				<Button needs="cluster" onClick={onCancel} disabled={job.state === "returning" || !!job.ending}>
					Cancel…
				</Button>
			) : null}
		</p>
	);
}

function NodeState({ n }: { n: Node }) {
	if (!n.reachable) return <span className="state hue-dead">✕ not reached</span>;
	const word = n.state || "alone";
	return (
		<>
			<span className={`state hue-${word === "voter" || word === "alone" ? "completed" : "scheduled"}`}>
				{word === "voter" || word === "alone" ? "●" : "◷"} {word.replace("_", " ")}
			</span>
			{n.drained ? <span className="state hue-blocked"> ⏸ drained</span> : null}
		</>
	);
}

/** Warned marks a figure that is out of bounds, by a glyph and by its ground. */
function Warned({ on, children }: { on: boolean; children: ReactNode }) {
	return on ? <span className="warn">{children} ⚠</span> : children;
}

const dash = <span className="dim">–</span>;
const actions = <span className="sr">actions</span>;

function Disk({ disk: d }: { disk: Node["disk"] }) {
	if (!d?.size) return dash;
	const used = d.size - (d.free ?? 0);
	return (
		<Meter
			used={used}
			all={d.size}
			label={`${size(d.free)} free of ${size(d.size)}, ${size(d.reserve)} kept in reserve`}
		>
			<Warned on={!!d.full}>
				{Math.round((100 * used) / d.size)} % of {size(d.size)}
			</Warned>
		</Meter>
	);
}

function Nodes({
	nodes,
	alone,
	format,
	onPlan,
}: {
	nodes: Node[];
	alone: boolean;
	format: number | undefined;
	onPlan: (p: Plan) => void;
}) {
	const now = useNow();
	const acts = (n: Node): MenuItem[] => [
		n.drained
			? { name: `Let ${n.name} lead again…`, needs: "cluster", onPick: () => onPlan({ verb: "undrain", node: n }) }
			: { name: `Drain ${n.name}…`, needs: "cluster", onPick: () => onPlan({ verb: "drain", node: n }) },
		...(n.state === "learner"
			? [{ name: `Give ${n.name} a vote…`, needs: "cluster", onPick: () => onPlan({ verb: "promote", node: n }) }]
			: []),
		{ name: `Remove ${n.name}…`, needs: "cluster", danger: true, onPick: () => onPlan({ verb: "remove", node: n }) },
	];
	return (
		<Panel title="Nodes">
			<Table
				label="Nodes"
				columns={[
					{
						id: "node",
						name: "node",
						cell: (n) => <span title={[n.address, n.grpc, n.http].filter(Boolean).join(" · ")}>{n.name}</span>,
					},
					{ id: "state", name: "state", look: "nobreak", cell: (n) => <NodeState n={n} /> },
					{ id: "leads", name: "leads", look: "nobreak", cell: (n) => (n.leads?.length ? n.leads.join(" ") : dash) },
					{
						id: "lag",
						name: "lag",
						num: true,
						cell: (n) => (n.reachable ? <Warned on={(n.lag ?? 0) > lagMost}>{count(n.lag)}</Warned> : "?"),
					},
					{ id: "disk", name: "disk", look: "nobreak", cell: (n) => <Disk disk={n.disk} /> },
					{
						id: "fsync",
						name: "fsync p50, p99",
						num: true,
						look: "nobreak",
						cell: (n) =>
							n.fsync_us ? (
								<Warned on={(n.fsync_us.p99 ?? 0) > slowSync}>
									{ms(n.fsync_us.p50)}, {ms(n.fsync_us.p99)}
								</Warned>
							) : (
								dash
							),
					},
					{
						id: "memory",
						name: "memory",
						look: "nobreak",
						cell: (n) => (n.memory?.used ? size(n.memory.used) : dash),
					},
					{
						id: "cert",
						name: "certificate",
						look: "nobreak",
						cell: (n) =>
							n.cert_ends_at ? (
								<Warned on={Date.parse(n.cert_ends_at) - now < certSoon}>
									<When at={n.cert_ends_at} />
								</Warned>
							) : (
								dash
							),
					},
					{
						id: "version",
						name: "version",
						look: "nobreak",
						cell: (n) =>
							n.program ? (
								<span title={`knows format ${n.knows_format}; ${format} is written`}>
									{n.program} f{n.knows_format}
								</span>
							) : (
								dash
							),
					},
					{
						id: "up",
						name: "up",
						look: "nobreak",
						cell: (n) => (n.started_at ? <Since at={n.started_at} /> : dash),
					},
					...(alone
						? []
						: [
								{
									id: "acts",
									name: actions,
									cell: (n: Node) => <Menu label="⋯" kind="quiet" title={`Actions on ${n.name}`} items={acts(n)} />,
								},
							]),
				]}
				rows={nodes}
				id={(n) => n.id}
			/>
		</Panel>
	);
}

/** Shards is a matrix: what each node has applied of each shard, and who leads. */
function Shards({
	shards,
	nodes,
	alone,
	onTransfer,
}: {
	shards: Shard[];
	nodes: Node[];
	alone: boolean;
	onTransfer: (s: Shard) => void;
}) {
	const rates = shards.some((s) => s.rates);
	const parts = shards.some((s) => s.partition_count !== undefined || s.partitions?.length);
	return (
		<Panel title="Shards" side={<span>applied on each node · ★ leads</span>}>
			<Table
				label="Shards"
				columns={[
					{
						id: "shard",
						name: "shard",
						cell: (s) => (
							<>
								{s.shard}
								{s.leader ? null : <span className="state hue-dead"> ✕ no leader</span>}
							</>
						),
					},
					...nodes.map((n) => ({
						id: `node ${n.id}`,
						name: n.name,
						num: true,
						look: "nobreak",
						cell: (s: Shard) => <Replica node={n} shard={s} />,
					})),
					{ id: "term", name: "term", num: true, cell: (s) => s.term },
					{ id: "committed", name: "committed", num: true, cell: (s) => count(s.committed) },
					...(rates ? [{ id: "entries", name: "entries", num: true, cell: (s: Shard) => rate(s.rates?.entries) }] : []),
					...(parts
						? [
								{
									id: "partitions",
									name: "partitions",
									look: "wrap",
									cell: (s: Shard) => (
										<span title={partitionNames(s, 100)}>
											{s.partition_count ?? s.partitions?.length ?? 0}
											<span className="dim"> {partitionNames(s, 3)}</span>
										</span>
									),
								},
							]
						: []),
					...(alone
						? []
						: [
								{
									id: "acts",
									name: actions,
									cell: (s: Shard) => (
										<Button
											kind="quiet"
											needs="cluster"
											onClick={() => onTransfer(s)}
											aria-label={`Transfer shard ${s.shard}…`}
										>
											Transfer…
										</Button>
									),
								},
							]),
				]}
				rows={[...shards].sort((a, b) => Number(!!a.leader) - Number(!!b.leader))}
				id={(s) => s.shard}
				rowProps={(s) => (s.leader ? {} : { className: "failed" })}
			/>
		</Panel>
	);
}

/** Replica is what a node has applied of a shard, and whether it leads. */
function Replica({ node, shard }: { node: Node; shard: Shard }) {
	const r = replicaOf(node, shard.shard);
	return (
		<>
			{shard.leader === node.id ? (
				<>
					<span aria-hidden="true">★</span>
					<span className="sr">leads,</span>{" "}
				</>
			) : null}
			{r ? (
				<span title={r.durable === undefined ? undefined : `durable up to ${count(r.durable)}`}>
					{count(r.applied)}
					{r.lag ? <span className="hue-blocked"> −{count(r.lag)}</span> : null}
				</span>
			) : node.reachable ? (
				dash
			) : (
				"?"
			)}
		</>
	);
}

function Links({ links, nodes }: { links: Link[] | undefined; nodes: Node[] }) {
	if (!links?.length) return null;
	return (
		<Panel title="Links" side="time of a round trip">
			<Table
				label="Links between nodes"
				columns={[
					{ id: "from", name: "from", cell: (from) => from.name },
					...nodes.map((to) => ({
						id: `to ${to.id}`,
						name: `to ${to.name}`,
						num: true,
						look: "nobreak",
						cell: (from: Node) =>
							from.id === to.id ? (
								<span className="dim">·</span>
							) : (
								<LinkState link={links.find((l) => l.from === from.id && l.to === to.id)} />
							),
					})),
				]}
				rows={nodes}
				id={(n) => n.id}
			/>
		</Panel>
	);
}

function LinkState({ link: l }: { link: Link | undefined }) {
	if (!l) return "?";
	if (!l.connected) return <span className="state hue-dead">✕ cut off</span>;
	return (
		<>
			{l.rtt_us ? ms(l.rtt_us) : ""} <span className="state hue-completed">●</span>
			<span className="sr"> connected</span>
		</>
	);
}

/** Losses says what stops if one more node is lost: whether a node may be restarted. */
function Losses({ losses, nodes, shards }: { losses: Loss[] | undefined; nodes: Node[]; shards: Shard[] }) {
	if (!losses?.length) return null;
	return (
		<Panel title="If one more node is lost">
			<table className="small" aria-label="What the loss of a node would stop">
				<tbody>
					{losses.map((l) => (
						<tr key={l.node}>
							<th scope="row">{nameOf(nodes, l.node)}</th>
							<td>{lossOf(l, shards)}</td>
						</tr>
					))}
				</tbody>
			</table>
		</Panel>
	);
}

function lossOf(l: Loss, shards: Shard[]): ReactNode {
	if (!l.shards?.length) return <span className="state hue-completed">✓ nothing stops: it may be restarted</span>;
	const stopped = shards.filter((s) => l.shards?.includes(s.shard ?? -1));
	const names = stopped.map((s) => partitionNames(s, 3)).filter(Boolean);
	return (
		<span className="state hue-dead wrap">
			✕ {l.shards.length === shards.length ? "all shards stop" : `shards ${l.shards.join(", ")} stop`}
			{names.length ? `: ${names.slice(0, 4).join(", ")}` : ""}
		</span>
	);
}

/** asItIs is a plan with its node or its shard as it is now: leaders change while a dialog is open. */
function asItIs(plan: Plan, status: Status): Plan {
	if ("node" in plan) return { ...plan, node: status.nodes?.find((n) => n.id === plan.node.id) ?? plan.node };
	if ("shard" in plan)
		return { ...plan, shard: status.shards?.find((s) => s.shard === plan.shard.shard) ?? plan.shard };
	return plan;
}

/** Ask confirms a change of the cluster, and does it. */
function Ask({ plan: begun, status, onClose }: { plan: Plan; status: Status; onClose: () => void }) {
	const queries = useQueryClient();
	const nodes = status.nodes ?? [];
	const plan = asItIs(begun, status);
	const [chosen, setTo] = useState<number>();
	const heirs =
		plan.verb === "transfer" ? nodes.filter((n) => n.id !== plan.shard.leader && n.reachable && !n.drained) : [];
	const to = heirs.some((n) => n.id === chosen) ? chosen : heirs[0]?.id;
	const members = (body: { verb: "drain" | "undrain" | "remove" | "promote" | "cancel"; node?: number }) =>
		call(api.POST("/v1/cluster/members", { body }));
	const done = async (answer: Promise<unknown>, text: string) => {
		await answer;
		queries.invalidateQueries({ queryKey: ["cluster"] });
		toast(text);
	};
	const common = { needs: "cluster", onClose };
	switch (plan.verb) {
		case "transfer":
			return (
				<Confirm
					{...common}
					title={`Move the lead of shard ${plan.shard.shard}`}
					what={
						<p>
							{nameOf(nodes, plan.shard.leader)} holds new writes back for some milliseconds and hands over. The shard
							stays there until that node stops leading it. What lies on it:{" "}
							{partitionNames(plan.shard) || "nothing yet"}.
						</p>
					}
					verb="Transfer"
					blocked={to === undefined}
					onConfirm={() =>
						done(
							call(api.POST("/v1/cluster/transfer", { body: { shard: plan.shard.shard ?? 0, to: to ?? 0 } })),
							`${nameOf(nodes, to)} leads shard ${plan.shard.shard}`,
						)
					}
				>
					<label className="field">
						To
						<select value={to} onChange={(e) => setTo(Number(e.target.value))}>
							{nodes
								.filter((n) => n.id !== plan.shard.leader)
								.map((n) => (
									<option key={n.id} value={n.id} disabled={!n.reachable || n.drained}>
										{n.name}
										{n.reachable
											? n.drained
												? ", drained"
												: n.lag
													? `, ${count(n.lag)} behind`
													: ""
											: ", not reached"}
									</option>
								))}
						</select>
					</label>
				</Confirm>
			);
		case "balance":
			return (
				<Confirm
					{...common}
					title="Balance the shards?"
					what={<p>Every shard goes home: to the node that it is dealt to. Also those that were moved by hand.</p>}
					verb="Balance"
					onConfirm={() => done(call(api.POST("/v1/cluster/balance")), "The shards go home")}
				/>
			);
		case "cancel":
			return (
				<Confirm
					{...common}
					title={`Cancel job ${status.job?.id}?`}
					what={
						<p>
							{status.job?.kind} {nameOf(nodes, status.job?.node)} is undone: the voters of before come back, shard by
							shard.
						</p>
					}
					verb="Cancel the job"
					onConfirm={() => done(members({ verb: "cancel" }), "The job is being undone")}
				/>
			);
		case "finalize":
			return (
				<Confirm
					{...common}
					title="Finalize the upgrade?"
					what={<p>From now on entries are written in the newest format that all programs of this cluster know.</p>}
					lost="Programs of the version before cannot read what is written from then on: there is no way back to them."
					verb="Finalize"
					type={String(status.format ?? "")}
					onConfirm={() => done(call(api.POST("/v1/cluster/finalize")), "The upgrade is finalized")}
				/>
			);
		case "drain":
			return (
				<Confirm
					{...common}
					title={`Drain ${plan.node.name}?`}
					what={
						<p>
							{plan.node.name} hands on the {many(plan.node.leads?.length ?? 0, "shard")} that it leads and leads none
							until that is taken back. It goes on to vote, and keeps its data.
						</p>
					}
					verb="Drain"
					onConfirm={() => done(members({ verb: "drain", node: plan.node.id ?? 0 }), `${plan.node.name} is drained`)}
				/>
			);
		case "undrain":
			return (
				<Confirm
					{...common}
					title={`Let ${plan.node.name} lead again?`}
					what={<p>Shards that are at home with {plan.node.name} go back to it some seconds later.</p>}
					verb="Let it lead"
					onConfirm={() =>
						done(members({ verb: "undrain", node: plan.node.id ?? 0 }), `${plan.node.name} may lead again`)
					}
				/>
			);
		case "promote":
			return (
				<Confirm
					{...common}
					title={`Give ${plan.node.name} a vote?`}
					what={<p>The learner becomes a voter, shard by shard: every write waits for a majority that counts it.</p>}
					verb="Promote"
					onConfirm={() =>
						done(members({ verb: "promote", node: plan.node.id ?? 0 }), `${plan.node.name} is being promoted`)
					}
				/>
			);
		case "remove": {
			const loss = status.if_lost?.find((l) => l.node === plan.node.id);
			return (
				<Confirm
					{...common}
					title={`Remove ${plan.node.name} from the cluster?`}
					what={
						<>
							<p>
								Other nodes lead its shards first; then it is taken out of each.{" "}
								{many(nodes.length - 1, "node is", "nodes are")} left, of which a majority must go on.
							</p>
							{loss?.shards?.length ? (
								<p className="warn">
									⚠ Without it now, shards {loss.shards.join(", ")} would stop: the server refuses that.
								</p>
							) : null}
						</>
					}
					lost="It never starts again with the data that it has. Its number can be added again with an empty directory."
					verb="Remove"
					type={plan.node.name ?? ""}
					onConfirm={() =>
						done(members({ verb: "remove", node: plan.node.id ?? 0 }), `${plan.node.name} is being removed`)
					}
				/>
			);
		}
	}
}

/** Partitions is what a session without the scope cluster sees: whether its own partitions are led. */
function Partitions() {
	const ns = useNamespace();
	const session = useSession();
	const query = useQuery({
		queryKey: ["namespace", ns],
		refetchInterval: 5000,
		queryFn: () => call(api.GET("/v1/namespace", { params: { query: { ns } } })),
	});
	const none = query.error ? asApiError(query.error).status === 404 : false;
	const all = query.data?.partitions ?? [];
	const lost = all.filter((p) => !p.led);
	return (
		<Page title="Cluster" name="Cluster">
			{none ? (
				<p role="status">✓ The namespace {ns} has nothing yet: what is written first makes it.</p>
			) : (
				<ReadFailed query={query} what="The namespace" />
			)}
			{query.isPending ? <Loading what="the partitions" /> : null}
			{query.data ? (
				<p role="status" className={lost.length ? "failed" : undefined}>
					{lost.length === 0
						? `✓ Your partitions: all ${all.length === 1 ? "" : `${all.length} `}led.`
						: `✕ Your partitions: no leader for ${lost.map((p) => `p${p.partition}`).join(", ")}. What lies there cannot be written now.`}
				</p>
			) : null}
			<p className="dim">
				Nodes and shards are shown to sessions with the scope cluster; {session.principal} does not have it.
			</p>
		</Page>
	);
}
