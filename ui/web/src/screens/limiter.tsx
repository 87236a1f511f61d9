import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { curl } from "../curl";
import { count, visible } from "../format";
import { DeleteLimiter, LimiterDialog, readLimiter } from "../limits/form";
import { type Limiter as LimiterOf, withFigures } from "../limits/limiter";
import { usePartitions } from "../limits/quota-view";
import { Holders, LimiterState, Used } from "../limits/view";
import { useFollow, useToldOne } from "../live/follow";
import { useNamespace } from "../namespace";
import { Button, copyText, Facts, Loading, Page, Panel, ReadFailed, When } from "../parts/basic";
import { rateText } from "../parts/bounds";
import { Menu } from "../parts/menu";
import { toast } from "../parts/toast";

/** Limiter is one limiter: how much of it is used, who holds it, and which queues name it. */
export function Limiter() {
	const ns = useNamespace();
	const { limiter: name = "" } = useParams({ strict: false }) as { limiter?: string };
	const partitions = usePartitions();
	// Which queues name it no topic tells: it is read whenever it is looked at.
	const query = useQuery({
		queryKey: [ns, "limiter", name],
		queryFn: () => readLimiter(name),
		retry: false,
		staleTime: 0,
	});
	const told = useToldOne<LimiterOf>(ns, "limiters", name, query);
	const [dialog, setDialog] = useState<"edit" | "delete">();
	const x = query.data && !query.error ? withFigures(query.data, told) : undefined;
	useFollow(x && `${x.used} ${x.tasks} ${x.version}`, query.refetch, 1000);
	const close = () => setDialog(undefined);
	const path = `/v1/limiters/${encodeURIComponent(name)}?ns=${encodeURIComponent(ns)}`;
	return (
		<Page
			name={name}
			title={
				<>
					{visible(name)} {x ? <LimiterState limiter={x} partitions={partitions} /> : null}
				</>
			}
			actions={
				x ? (
					<>
						<Button kind="main" needs="admin" onClick={() => setDialog("edit")}>
							Change…
						</Button>
						<Menu
							label="⋯"
							title="More actions"
							items={[
								{ name: "Copy as curl", onPick: () => copyText(curl("GET", path)).then(() => toast("Command copied")) },
								{ name: "Delete…", needs: "admin", danger: true, onPick: () => setDialog("delete") },
							]}
						/>
					</>
				) : null
			}
		>
			<ReadFailed query={query} what="The limiter" />
			{query.isPending ? <Loading what="the limiter" /> : null}
			{x ? (
				<>
					<Facts items={factsOf(x, partitions)} />
					<div className="columns apart">
						<Panel title="Who holds it" side="running tasks">
							<Holders limiter={x} />
						</Panel>
						<Panel title="Queues that name it" side="for all of their tasks">
							<Queues limiter={x} />
						</Panel>
					</div>
				</>
			) : null}
			{dialog === "edit" && x ? <LimiterDialog from={x} onClose={close} /> : null}
			{dialog === "delete" && x ? <DeleteLimiter limiter={x} onClose={close} /> : null}
		</Page>
	);
}

function factsOf(x: LimiterOf, partitions: number): [string, ReactNode][] {
	return [
		["used", <Used key="u" limiter={x} partitions={partitions} />],
		[
			"may run at once",
			x.concurrency ? `${count(x.concurrency)}${partitions > 1 ? " in each partition" : ""}` : "no bound",
		],
		["rate", rateText(x.rate) ? `${rateText(x.rate)}${partitions > 1 ? " in each partition" : ""}` : "no bound"],
		["the next one begins", x.until ? <When key="n" at={x.until} /> : "now"],
		["tasks that name it and have not ended", count(x.tasks)],
		["version", x.version ?? "0"],
	];
}

function Queues({ limiter: x }: { limiter: LimiterOf }) {
	const ns = useNamespace();
	const queues = x.queues ?? [];
	if (queues.length === 0) return <p className="dim">None that you may see. Tasks may name it by themselves.</p>;
	return (
		<ul>
			{queues.map((queue) => (
				<li key={queue}>
					<Link to="/$ns/queues/$queue/$tab" params={{ ns, queue, tab: "limits" }}>
						{visible(queue)}
					</Link>
				</li>
			))}
			{queues.length >= 10 ? <li className="dim">The first {count(queues.length)} by name.</li> : null}
		</ul>
	);
}
