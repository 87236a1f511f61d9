import { useQuery } from "@tanstack/react-query";
import { api, call } from "../api/client";
import { asApiError } from "../api/errors";
import { count, parseTime, timeOfDay, visible } from "../format";
import { pollEvery } from "../live/follow";
import { useLiveStatus } from "../live/live";
import { useNamespace } from "../namespace";
import { useNow } from "../now";
import { Loading, Meter, Panel, ReadFailed, When } from "../parts/basic";
import type { Column } from "../parts/column";
import { Table } from "../parts/table";
import { useMay } from "../session";
import { useSettings } from "../settings";
import { amount, countedSince, namespaceQuotas, overText, type Quota, type Refusals, tenantQuotas } from "./quota";

/** What a token needs to be told the bounds of its tenant. */
const ofTenant = "admin|tenant:admin";

/** useSpace reads the configuration of the namespace; null: nothing was stored in it yet, so it is not there. */
export function useSpace() {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	return useQuery({
		queryKey: [ns, "namespace"],
		queryFn: () =>
			call(api.GET("/v1/namespace")).catch((e) => {
				if (asApiError(e).code === "NOT_FOUND") return null;
				throw e;
			}),
		retry: false,
		refetchInterval: status === "paused" ? false : 2 * pollEvery,
	});
}

/** usePartitions is how many partitions the namespace has. */
export function usePartitions(): number {
	return useSpace().data?.partitions?.length || 1;
}

/** Quotas are the bounds of the namespace and, for who may be told them, those of the tenant. */
export function Quotas() {
	const ns = useNamespace();
	const status = useLiveStatus(ns);
	const may = useMay()(ofTenant);
	const space = useSpace();
	const tenant = useQuery({
		queryKey: [ns, "tenant"],
		enabled: may,
		queryFn: () => call(api.GET("/v1/tenant")),
		retry: false,
		refetchInterval: status === "paused" ? false : pollEvery,
	});
	return (
		<div className="columns apart">
			<Panel
				title={tenant.data ? `Bounds of the tenant ${tenant.data.tenant}` : "Bounds of the tenant"}
				side={tenant.data ? `weight ${count(tenant.data.weight || 1)} in the log` : null}
			>
				{may ? (
					<>
						<ReadFailed query={tenant} what="The bounds of the tenant" />
						{tenant.data ? (
							<>
								<Rows label="Bounds of the tenant" rows={tenantQuotas(tenant.data)} />
								<Counted of={tenant.data.refusals} />
							</>
						) : tenant.error ? null : (
							<Loading what="the bounds of the tenant" />
						)}
					</>
				) : (
					<p className="dim">They are told to tokens with the scope admin or tenant:admin.</p>
				)}
			</Panel>
			<Panel title={`Bounds of the namespace ${ns}`}>
				<ReadFailed query={space} what="The bounds of the namespace" />
				{space.data ? (
					<>
						<Rows label="Bounds of the namespace" rows={namespaceQuotas(space.data)} />
						<Counted of={space.data.refusals} />
					</>
				) : space.data === null ? (
					<p className="dim">Nothing was stored in the namespace yet.</p>
				) : space.error ? null : (
					<Loading what="the bounds of the namespace" />
				)}
			</Panel>
		</div>
	);
}

const columns: Column<Quota>[] = [
	{ id: "name", name: "what", cell: (q) => <span title={q.note}>{q.name}</span> },
	{ id: "used", name: "used", num: true, look: "nobreak", cell: (q) => <Used quota={q} /> },
	{
		id: "bound",
		name: "limit",
		num: true,
		look: "nobreak",
		cell: (q) => (q.bound ? amount(q.bound, q.unit) : <span className="dim">{q.other ? "of each" : "no bound"}</span>),
	},
	{ id: "refused", name: "refused in 24 h", num: true, cell: (q) => <RefusedCount quota={q} /> },
];

/** Used is what is used of a bound, and how far that is beyond it. */
function Used({ quota: q }: { quota: Quota }) {
	if (q.used === undefined) return <span className="dim">–</span>;
	const over = overText(q);
	return (
		<>
			{over ? <strong className="hue-dead">{over} beyond </strong> : null}
			{q.bound ? (
				<Meter used={q.used} all={q.bound} label={`${amount(q.used, q.unit)} of ${amount(q.bound, q.unit)}`}>
					{amount(q.used, q.unit)}
				</Meter>
			) : (
				amount(q.used, q.unit)
			)}
		</>
	);
}

/** RefusedCount is how often a bound refused something in the last day, and when it did so last. */
function RefusedCount({ quota: q }: { quota: Quota }) {
	if (q.refused === undefined) return <span className="dim">–</span>;
	if (q.refused === 0) return "0";
	return (
		<>
			<strong>{count(q.refused)}</strong>{" "}
			<span className="dim nobreak">
				<When at={q.last} />
			</span>
		</>
	);
}

/** Counted says whose counts of refusals these are, and since when, where that is not a day. */
function Counted({ of }: { of: Refusals | undefined }) {
	const now = useNow();
	const { times } = useSettings();
	if (!of) return null;
	const minute = (at: string | undefined) => timeOfDay(parseTime(at) ?? now, times).slice(0, 5);
	const young = countedSince(of, now);
	return (
		<p className="dim">
			{young.length > 0
				? `Refusals are counted since ${young.map((n) => `${minute(n.since)} (memory of ${visible(n.node ?? "")})`).join(", ")}.`
				: "Refusals are counted in the memory of each node."}
			{of.partial ? " Not all nodes have answered, or some refusals were not counted by their names." : ""}
		</p>
	);
}

function Rows({ label, rows }: { label: string; rows: Quota[] }) {
	return <Table label={label} columns={columns} rows={rows} id={(q) => q.name} />;
}
