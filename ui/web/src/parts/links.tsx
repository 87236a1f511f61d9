import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { tail, visible } from "../format";

const none = <span className="dim">–</span>;

export function TaskLink({ ns, id }: { ns: string; id: string }) {
	return (
		<Link to="/$ns/tasks/$id" params={{ ns, id }} className="mono" title={id}>
			{tail(id, 6)}
		</Link>
	);
}

export function QueueLink({ ns, queue }: { ns: string; queue: string | undefined }): ReactNode {
	if (!queue) return null;
	return (
		<Link to="/$ns/queues/$queue" params={{ ns, queue }}>
			{visible(queue)}
		</Link>
	);
}

/** WorkerLink leads to a worker among all of them. */
export function WorkerLink({ ns, worker }: { ns: string; worker: string | undefined }): ReactNode {
	if (!worker) return none;
	return (
		<Link to="/$ns/workers" params={{ ns }} search={{ q: worker }}>
			{visible(worker)}
		</Link>
	);
}

export function LimiterLink({ ns, name }: { ns: string; name: string | undefined }): ReactNode {
	if (!name) return none;
	return (
		<Link to="/$ns/limits/$limiter" params={{ ns, limiter: name }}>
			{visible(name)}
		</Link>
	);
}

export function BatchLink({ ns, id }: { ns: string; id: string | undefined }): ReactNode {
	if (!id) return none;
	return (
		<Link to="/$ns/batches/$batch" params={{ ns, batch: id }} className="mono" title={id}>
			{tail(id, 6)}
		</Link>
	);
}

/** Names are several names, such as of those who hold something up. */
export function Names({ of, one, more }: { of: readonly string[]; one: (name: string) => ReactNode; more?: boolean }) {
	return (
		<>
			{of.map((name, i) => (
				<span key={name}>
					{i > 0 ? ", " : ""}
					{one(name)}
				</span>
			))}
			{more ? ", …" : ""}
		</>
	);
}
