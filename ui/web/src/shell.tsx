import { Link, Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { type ReactNode, useEffect, useState } from "react";
import type { Schemas } from "./api/client";
import { tellUnled } from "./api/stale";
import { clock, parseTime, span, visible } from "./format";
import { useKeys } from "./keys";
import { liveOf, useLiveStatus, useTopic } from "./live/live";
import { useNamespace, useNamespaces } from "./namespace";
import { useNow } from "./now";
import { Palette } from "./palette";
import { EnvLabel } from "./parts/label";
import { Menu } from "./parts/menu";
import { Toasts } from "./parts/toast";
import { useSession, useSessionState } from "./session";
import { useSettings } from "./settings";

type Overview = Schemas["Overview"];

/** A place of the left rail: shown where the service is open and the session has one of the scopes. */
interface Place {
	name: string;
	to: string;
	letter?: string;
	service?: string;
	needs?: string;
	group: "" | "data" | "place";
}

const places: Place[] = [
	{ name: "Overview", to: "/$ns/overview", letter: "o", group: "" },
	{ name: "Queues", to: "/$ns/queues", letter: "q", group: "", needs: "task:read" },
	{ name: "Tasks", to: "/$ns/tasks", letter: "t", group: "", needs: "task:read" },
	{ name: "Dead letters", to: "/$ns/dead", letter: "d", group: "", needs: "task:read" },
	{ name: "Batches", to: "/$ns/batches", letter: "a", group: "", needs: "task:read" },
	{ name: "Bulk jobs", to: "/$ns/bulk", letter: "b", group: "", needs: "task:read" },
	{ name: "Workers", to: "/$ns/workers", letter: "w", group: "", needs: "task:read" },
	{ name: "Crons", to: "/$ns/crons", letter: "n", group: "", needs: "task:read" },
	{ name: "Limits", to: "/$ns/limits", letter: "l", group: "", needs: "task:read" },
	{ name: "Keys", to: "/$ns/kv", letter: "k", service: "kv", group: "data", needs: "kv:read" },
	{ name: "Repositories", to: "/$ns/repos", letter: "r", service: "refs", group: "data", needs: "ref:read" },
	{ name: "Search", to: "/$ns/search", letter: "s", service: "search", group: "data", needs: "search:read" },
	{ name: "Cluster", to: "/cluster", letter: "c", group: "place", needs: "cluster" },
	{ name: "Settings", to: "/settings", letter: "e", group: "place" },
];

/** usePlaces are the places that this session can go to. */
export function usePlaces(): Place[] {
	const { scopes, services } = useSession();
	const open = (p: Place) =>
		!p.service || services.length === 0 || services.includes(p.service) || services.includes("all");
	return places.filter((p) => open(p) && (!p.needs || scopes.includes(p.needs)));
}

/** Shell is what every page has: the rail, the bar above, the palette and the outcomes of actions. */
export function Shell() {
	const session = useSession();
	const { signOut } = useSessionState();
	const ns = useNamespace();
	const navigate = useNavigate();
	const list = usePlaces();
	const [palette, setPalette] = useState<"" | "search" | "keys">("");
	const [rail, setRail] = useState(false);
	const path = useRouterState({ select: (s) => s.location.pathname });
	const keys: Record<string, () => void> = {
		"mod+k": () => setPalette("search"),
		"?": () => setPalette("keys"),
		" ": () => {
			const live = liveOf(ns);
			live.pause(live.status !== "paused");
		},
	};
	for (const p of list) if (p.letter) keys[`g ${p.letter}`] = () => navigate({ to: p.to, params: { ns } } as never);
	useKeys(keys);
	const group = (g: Place["group"]) =>
		list
			.filter((p) => p.group === g)
			.map((p) => (
				<li key={p.to}>
					<Link
						{...({ to: p.to, params: { ns } } as { to: string })}
						activeProps={{ "aria-current": "page" }}
						title={p.letter ? `g ${p.letter}` : undefined}
						onClick={() => setRail(false)}
					>
						{p.name}
					</Link>
				</li>
			));
	return (
		<div className={rail ? "shell rail-open" : "shell"}>
			<a className="skip" href="#main">
				Skip to the page
			</a>
			<header className="bar">
				<button type="button" className="quiet rail-button" aria-expanded={rail} onClick={() => setRail(!rail)}>
					☰<span className="sr"> Menu</span>
				</button>
				<Link to="/" className="brand">
					millrace
				</Link>
				<EnvLabel />
				<NamespaceMenu ns={ns} path={path} />
				<button type="button" className="jump" onClick={() => setPalette("search")}>
					Jump to… <kbd>⌘K</kbd>
				</button>
				<LiveDot ns={ns} />
				<Menu
					kind="quiet"
					label={`${session.principal} ▾`}
					title={`${session.principal} of ${session.tenant}`}
					items={[
						{ name: "Settings", onPick: () => navigate({ to: "/settings" }) },
						{ name: "Shortcuts", onPick: () => setPalette("keys") },
						{ name: "Sign out", onPick: () => void signOut() },
					]}
				/>
			</header>
			{session.insecure ? (
				<Stripe>This server speaks plain text (--insecure): tokens and data can be read on the way.</Stripe>
			) : null}
			{session.durability === "none" ? (
				<Stripe>
					This server does not wait for its disk (--durability none): a power cut loses acknowledged writes.
				</Stripe>
			) : null}
			<Unled ns={ns} />
			<nav className="rail" aria-label="Places">
				<ul>{group("")}</ul>
				<h2>data</h2>
				<ul>{group("data")}</ul>
				<h2>place</h2>
				<ul>{group("place")}</ul>
			</nav>
			<main id="main" tabIndex={-1}>
				<Outlet />
			</main>
			{palette ? <Palette first={palette} onClose={() => setPalette("")} /> : null}
			<Toasts />
		</div>
	);
}

/** Unled says over every page which partitions no node leads, and how old what is shown of them is. */
function Unled({ ns }: { ns: string }) {
	const { node } = useSession();
	const { times } = useSettings();
	const overview = useTopic(ns, "overview");
	const row = overview && ([...overview.rows.values()][0] as Overview | undefined);
	const list = row?.attention?.filter((a) => a.kind === "partition_unled") ?? [];
	const some = list.length > 0;
	useEffect(() => tellUnled(some), [some]);
	if (!some) return null;
	const at = parseTime(overview?.stamp);
	return (
		<Stripe>
			Stale: no node leads {list.map((a) => `p${a.object}`).join(", ")}. It is shown as {node} had it
			{at === undefined ? "" : ` at ${clock(at, times)}`}, and nothing is written there until most nodes are back.
		</Stripe>
	);
}

function Stripe({ children }: { children: ReactNode }) {
	return (
		<div className="stripe" role="note">
			⚠ {children}
		</div>
	);
}

function NamespaceMenu({ ns, path }: { ns: string; path: string }) {
	const navigate = useNavigate();
	const [asked, setAsked] = useState(false);
	const names = useNamespaces(asked);
	const to = (name: string) => {
		// The same screen of the other namespace, without what names a thing of this one.
		const screen = path.split("/")[2] ?? "overview";
		navigate({ to: `/${name}/${screen}` } as never);
	};
	return (
		<Menu
			kind="quiet"
			label={`ns: ${visible(ns)} ▾`}
			title={`Namespace ${visible(ns)}`}
			onNear={() => setAsked(true)}
			items={(names.includes(ns) ? names : [ns, ...names]).map((name) => ({ name, onPick: () => to(name) }))}
		/>
	);
}

const words = {
	live: ["●", "live"],
	connecting: ["◌", "connecting"],
	failing: ["○", "not live"],
	paused: ["‖", "paused"],
} as const;

/** LiveDot says whether the page is live, and how old it is where it is not. */
function LiveDot({ ns }: { ns: string }) {
	const status = useLiveStatus(ns);
	const overview = useTopic(ns, "overview");
	const now = useNow();
	const at = parseTime(overview?.stamp);
	const [glyph, word] = words[status];
	const live = liveOf(ns);
	return (
		<button
			type="button"
			className={`quiet live live-${status}`}
			aria-pressed={status === "paused"}
			title={status === "paused" ? "Go on (Space)" : "Hold what is shown (Space)"}
			onClick={() => live.pause(status !== "paused")}
		>
			<span aria-hidden="true">{glyph}</span> {word}
			{status === "failing" && at !== undefined ? <span className="dim"> {span(now - at)} old</span> : null}
			{overview?.partial && status === "live" ? <span title="A leader did not answer"> ⚠</span> : null}
		</button>
	);
}
