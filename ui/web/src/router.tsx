import {
	createRootRoute,
	createRoute,
	createRouter,
	lazyRouteComponent,
	Outlet,
	type RouteComponent,
	redirect,
} from "@tanstack/react-router";
import { setNamespace } from "./api/client";
import { asApiError } from "./api/errors";
import { keepNamespace, lastNamespace } from "./namespace";
import { Empty, Failed, Page } from "./parts/basic";
import { Overview } from "./screens/overview";
import { Shell } from "./shell";

/** Search values that screens read from the address. All are text, so that an address can be typed by hand. */
export type Search = Partial<
	Record<
		| "q"
		| "at"
		| "order"
		| "sort"
		| "only"
		| "prefix"
		| "queue"
		| "kind"
		| "group"
		| "key"
		| "view"
		| "span"
		| "ref"
		| "id"
		| "collection"
		| "text"
		| "attempt"
		| "tag",
		string
	>
>;

const root = createRootRoute({
	component: Shell,
	errorComponent: ({ error, reset }) => (
		<Page title="This page failed" name="Failed">
			<Failed error={asApiError(error)} retry={reset} />
		</Page>
	),
	notFoundComponent: () => (
		<Page title="There is nothing here" name="Not found">
			<Empty>The address names no page of this server.</Empty>
		</Page>
	),
	validateSearch: (raw: Record<string, unknown>): Search => {
		const out: Record<string, string> = {};
		for (const [k, v] of Object.entries(raw))
			if (typeof v === "string" || typeof v === "number" || typeof v === "boolean") out[k] = String(v);
		return out;
	},
});

/** The screens but the first are a file of their own. */
const pages = () => import("./screens");
const lazy = (name: keyof Awaited<ReturnType<typeof pages>>) => lazyRouteComponent(pages, name);

const index = createRoute({
	getParentRoute: () => root,
	path: "/",
	beforeLoad: () => {
		throw redirect({ to: "/$ns/overview", params: { ns: lastNamespace() } });
	},
});

const cluster = createRoute({ getParentRoute: () => root, path: "/cluster", component: lazy("Cluster") });
const settings = createRoute({ getParentRoute: () => root, path: "/settings", component: lazy("Settings") });

const ns = createRoute({
	getParentRoute: () => root,
	path: "/$ns",
	component: Outlet,
	beforeLoad: ({ params }) => {
		setNamespace(params.ns);
		keepNamespace(params.ns);
	},
});

const first = createRoute({
	getParentRoute: () => ns,
	path: "/",
	beforeLoad: ({ params }) => {
		throw redirect({ to: "/$ns/overview", params });
	},
});

const at = <P extends string>(path: P, component: RouteComponent) =>
	createRoute({ getParentRoute: () => ns, path, component });

const tree = root.addChildren([
	index,
	cluster,
	settings,
	ns.addChildren([
		first,
		at("/overview", Overview),
		at("/queues", lazy("Queues")),
		at("/queues/$queue", lazy("Queue")),
		at("/queues/$queue/$tab", lazy("Queue")),
		at("/tasks", lazy("Tasks")),
		at("/tasks/$id", lazy("Task")),
		at("/tasks/$id/$tab", lazy("Task")),
		at("/dead", lazy("Dead")),
		at("/bulk", lazy("Bulk")),
		at("/bulk/$id", lazy("BulkJob")),
		at("/workers", lazy("Workers")),
		at("/crons", lazy("Crons")),
		at("/crons/$cron", lazy("Cron")),
		at("/limits", lazy("Limits")),
		at("/limits/$limiter", lazy("Limiter")),
		at("/batches", lazy("Batches")),
		at("/batches/$batch", lazy("Batch")),
		at("/kv", lazy("Keyspaces")),
		at("/kv/$keyspace", lazy("Keys")),
		at("/repos", lazy("Repos")),
		at("/repos/$repo", lazy("Repo")),
		at("/repos/$repo/$tab", lazy("Repo")),
		at("/search", lazy("SearchPage")),
	]),
]);

export const router = createRouter({
	routeTree: tree,
	basepath: "/ui",
	defaultPreload: false,
	// Values of the address are plain text: ?q=queue:mail, not JSON.
	parseSearch: (s) => Object.fromEntries(new URLSearchParams(s)),
	stringifySearch: (o) => {
		const p = new URLSearchParams();
		for (const [k, v] of Object.entries(o)) if (v !== undefined && v !== "") p.set(k, String(v));
		const s = p.toString().replaceAll("%3A", ":").replaceAll("%2F", "/");
		return s ? `?${s}` : "";
	},
});

declare module "@tanstack/react-router" {
	interface Register {
		router: typeof router;
	}
}
