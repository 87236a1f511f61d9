import type { Schemas } from "../api/client";
import { count, rate, size } from "../format";

type Tenant = Schemas["Tenant"];
type Namespace = Schemas["Namespace"];

/** Quota is a bound of a tenant or of a namespace, and what is used of it. */
export interface Quota {
	name: string;
	/** undefined where it is not measured: a rate without a bound. */
	used: number | undefined;
	/** undefined: there is no bound. */
	bound: number | undefined;
	unit: "things" | "bytes" | "a second" | "bytes a second";
	/** How much is there beyond the bound. */
	over: number;
	/** What the figure is of, where that is not all. */
	note?: string | undefined;
	/** How often it refused something in the last 24 hours; undefined: that is not counted. */
	refused?: number | undefined;
	/** When it refused something last. */
	last?: string | undefined;
	/** A limit of something in the namespace, such as a queue, by its name in errors: there may be many of it, each with a bound of its own. */
	other?: boolean;
}

export type Refusals = Schemas["Refusals"];

/** refusedBy is what the bound that a field sets has refused. */
function refusedBy(r: Refusals | undefined, bound: string): Pick<Quota, "refused" | "last"> {
	const one = r?.bounds?.find((b) => b.bound === bound);
	return { refused: r ? (one?.count ?? 0) : undefined, last: one?.last };
}

/** countedSince are the nodes that count refusals for less than a day: the others tell all of it. */
export const countedSince = (r: Refusals | undefined, now: number) =>
	(r?.nodes ?? []).filter((n) => Date.parse(n.since ?? "") > now - 24 * 3_600_000);

/** What holds where a tenant has no bound of its own. */
const most = { tasks: 20_000_000, bytes: 64 * 2 ** 30, running: 100_000 };

/** tenantQuotas are the bounds of all namespaces of a tenant together. */
export function tenantQuotas(t: Tenant): Quota[] {
	return [
		{
			name: "tasks that have not ended",
			used: t.current_tasks ?? 0,
			bound: t.tasks || most.tasks,
			unit: "things",
			over: t.overshoot_tasks ?? 0,
			...refusedBy(t.refusals, "tasks"),
		},
		{
			name: "payloads, results and logs",
			used: t.current_task_bytes ?? 0,
			bound: t.task_bytes || most.bytes,
			unit: "bytes",
			over: t.overshoot_task_bytes ?? 0,
			...refusedBy(t.refusals, "task_bytes"),
		},
		{
			name: "running tasks",
			used: t.current_running_tasks ?? 0,
			bound: t.running_tasks || most.running,
			unit: "things",
			over: t.overshoot_running_tasks ?? 0,
		},
		{
			name: "tasks created",
			used: t.recent_task_creates_per_second ?? 0,
			bound: t.task_creates_per_second || undefined,
			unit: "a second",
			over: t.overshoot_task_creates ?? 0,
			...refusedBy(t.refusals, "task_creates_per_second"),
		},
		{
			name: t.streams ? "open streams" : "open streams, here",
			used: t.current_streams ?? 0,
			bound: t.streams || undefined,
			unit: "things",
			over: 0,
			note: t.streams ? undefined : "of the node that answers",
			...refusedBy(t.refusals, "streams"),
		},
		...keyQuotas(t, t.measured_key_bytes ?? 0),
	];
}

/**
 * namespaceQuotas are the bounds of one namespace, and what other limits of what is in it have refused. Of what has no bound nothing is
 * measured.
 */
export function namespaceQuotas(n: Namespace): Quota[] {
	const own = keyQuotas(n, n.key_bytes ? (n.measured_key_bytes ?? 0) : undefined);
	const others = (n.refusals?.bounds ?? []).filter((b) => !(keyBounds as readonly string[]).includes(b.bound ?? ""));
	return [
		...own,
		{
			name: "ended tasks that are kept",
			used: undefined,
			bound: n.retain_bytes || 10 * 2 ** 30,
			unit: "bytes",
			over: 0,
		},
		...others.map(
			(b): Quota => ({
				name: b.bound ?? "",
				used: undefined,
				bound: undefined,
				unit: "things",
				over: 0,
				refused: b.count ?? 0,
				last: b.last,
				other: true,
			}),
		),
	];
}

/** The fields that set the bounds of keys. */
const keyBounds = ["key_bytes", "key_writes_per_second", "key_bytes_per_second"] as const;

/** keyQuotas are the bounds of keys, which tenants and namespaces have alike. */
function keyQuotas(x: Tenant | Namespace, bytes: number | undefined): Quota[] {
	const perSecond = (bound: number | undefined, used: number | undefined) => (bound ? (used ?? 0) : undefined);
	return [
		{
			name: "keys on disk",
			used: bytes,
			bound: x.key_bytes || undefined,
			unit: "bytes",
			over: x.over_key_bytes && bytes !== undefined ? Math.max(0, bytes - (x.key_bytes ?? 0)) : 0,
			...refusedBy(x.refusals, keyBounds[0]),
		},
		{
			name: "puts of keys",
			used: perSecond(x.key_writes_per_second, x.recent_key_writes_per_second),
			bound: x.key_writes_per_second || undefined,
			unit: "a second",
			over: x.overshoot_key_writes ?? 0,
			...refusedBy(x.refusals, keyBounds[1]),
		},
		{
			name: "keys and values put",
			used: perSecond(x.key_bytes_per_second, x.recent_key_bytes_per_second),
			bound: x.key_bytes_per_second || undefined,
			unit: "bytes a second",
			over: x.overshoot_key_bytes_written ?? 0,
			...refusedBy(x.refusals, keyBounds[2]),
		},
	];
}

/** amount writes a figure of a bound in its unit. */
export function amount(n: number | undefined, unit: Quota["unit"]): string {
	if (n === undefined) return "–";
	switch (unit) {
		case "bytes":
			return size(n);
		case "bytes a second":
			return `${size(n)}/s`;
		case "a second":
			return rate(n);
	}
	return count(n);
}

/** overText says how far a bound is passed: of a rate that is what was let through, and is waited for. */
export const overText = (q: Quota): string =>
	q.over === 0 ? "" : q.unit === "bytes" || q.unit === "bytes a second" ? size(q.over) : count(q.over);
