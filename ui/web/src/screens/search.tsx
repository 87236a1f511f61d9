import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { api, call, type Schemas } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { curl } from "../curl";
import { count, many, size, visible } from "../format";
import { useKeys } from "../keys";
import { useNamespace } from "../namespace";
import { Button, Copy, Empty, Facts, Failed, Loading, NotDone, Page, Panel, ReadFailed } from "../parts/basic";
import { jsonText } from "../parts/config-dialog";
import { Dialog } from "../parts/dialog";
import { type Column, Grid } from "../parts/grid";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { type Form, fields, formOf, marked, only, type Request, requestOf, whyNot } from "../search-form";

type Answer = Schemas["SearchResponse"];
type Result = Schemas["SearchResult"];

/** Asked is a search that was run: its request, and a number, so that the same request can be run again. */
interface Asked {
	request: Request;
	run: number;
}

/** SearchPage asks a collection, and shows what gate, judge and merge did with each row, by the numbers of the answer. */
export function SearchPage() {
	const ns = useNamespace();
	const navigate = useNavigate();
	const search = useSearch({ strict: false }) as Record<string, string | undefined>;
	const there = useMemo(() => formOf(search), [search]);
	const [form, setForm] = useState(there);
	// Back and forward, and a link, put the form at what the address says.
	useEffect(() => setForm(there), [there]);
	const [vector, setVector] = useState("");
	const [model, setModel] = useState("");
	const [asked, setAsked] = useState<Asked | undefined>(() => {
		const made = requestOf(there, "", "");
		return "request" in made && there.collection && there.record !== "1"
			? { request: made.request, run: 0 }
			: undefined;
	});
	const [more, setMore] = useState(() => advanced.some((f) => there[f] !== ""));
	const [rules, setRules] = useState(false);
	const collections = useQuery({
		queryKey: ["collections", ns],
		queryFn: () => call(api.GET("/v1/collections", { params: { query: { ns, limit: 1000 } } })),
	});
	const rulesets = useQuery({
		queryKey: ["rulesets", ns],
		queryFn: () => call(api.GET("/v1/rulesets", { params: { query: { ns } } })),
	});
	const answer = useQuery({
		queryKey: ["search", ns, asked],
		enabled: !!asked,
		staleTime: Number.POSITIVE_INFINITY, // a search is run when it is asked for
		refetchOnWindowFocus: false,
		retry: false,
		queryFn: () => call(api.POST("/v1/matrix/search", { params: { query: { ns } }, body: asked!.request })),
	});
	const all = collections.data?.collections ?? [];
	const chosen = all.find((c) => c.name === form.collection);
	useEffect(() => {
		if (form.collection === "" && all[0]?.name) setForm((f) => ({ ...f, collection: all[0]?.name ?? "" }));
	}, [all, form.collection]);
	const made = requestOf(form, vector, model);
	const set = (f: keyof Form) => (value: string) => setForm((old) => ({ ...old, [f]: value }));
	const run = () => {
		if (!("request" in made)) return;
		setAsked((a) => ({ request: made.request, run: (a?.run ?? 0) + 1 }));
		navigate({
			to: "/$ns/search",
			params: { ns },
			search: Object.fromEntries(fields.filter((f) => form[f] !== "").map((f) => [f, form[f]])) as never,
		});
	};
	useKeys({ "mod+enter": run, Enter: run });
	const error = answer.error ? asApiError(answer.error) : undefined;
	const fault = "fault" in made ? made.fault : undefined;
	const text = (f: keyof Form, label: string, o: { wide?: boolean; hint?: string; mono?: boolean } = {}) => (
		<label className={o.wide ? "field grow" : "field"}>
			{label}
			<input
				className={o.mono ? "mono" : undefined}
				value={form[f]}
				placeholder={o.hint}
				onChange={(e) => set(f)(e.target.value)}
				spellCheck={false}
				autoComplete="off"
				size={o.wide ? undefined : 10}
				aria-invalid={fault?.field === f}
			/>
		</label>
	);
	const check = (f: keyof Form, label: string, on = "1", off = "") => (
		<label className="check">
			<input
				type="checkbox"
				checked={on === "1" ? form[f] === "1" : form[f] !== "0"}
				onChange={(e) => set(f)(e.target.checked ? (on === "1" ? "1" : "") : off)}
			/>
			{label}
		</label>
	);
	const choice = (f: keyof Form, label: string, words: [string, string][]) => (
		<label className="field">
			{label}
			<select value={form[f]} onChange={(e) => set(f)(e.target.value)}>
				{words.map(([v, w]) => (
					<option key={v} value={v}>
						{w}
					</option>
				))}
			</select>
		</label>
	);
	if (collections.data && all.length === 0)
		return (
			<Page title="Search" name="Search">
				<Empty command="millrace search collection create people --field role:keywords:role --field years:int">
					There is no collection to search. Points live in collections.
				</Empty>
			</Page>
		);
	return (
		<Page title="Search" name="Search">
			<ReadFailed query={collections} what="The collections" />
			<form
				className="panel"
				onSubmit={(e) => {
					e.preventDefault();
					run();
				}}
			>
				<div className="field-row">
					{choice(
						"collection",
						"Collection",
						all.map((c) => [c.name ?? "", c.name ?? ""]),
					)}
					{text("text", "Text", { wide: true, hint: vector ? "a vector is asked for instead" : "need a mig welder" })}
					{text("k", "k", { hint: "10" })}
					<div className="actions acts">
						{check("explain", "explain", "0", "0")}
						{check("exact", "exact")}
						<button type="submit" className="main" disabled={!!fault} title="⌘Enter">
							Run
						</button>
						{"request" in made ? (
							<Copy text={() => curl("POST", `/v1/matrix/search?ns=${encodeURIComponent(ns)}`, made.request)}>
								copy as curl
							</Copy>
						) : null}
					</div>
				</div>
				<div className="field-row">
					{text("roles", "Gate: roles", { hint: "welder, painter" })}
					{text("creds", "credentials, all of", { hint: "MIG-2" })}
					{text("client", "client")}
					{text("filter", "filter", { wide: true, mono: true, hint: 'years > 3 && status == "available"' })}
					{text("params", "p, as JSON", { mono: true, hint: '{"at":[41.5,-88.1]}' })}
				</div>
				<div className="field-row">
					{choice("ruleset", "Judge: ruleset", [
						["", "none"],
						...[...new Set([...(rulesets.data?.rulesets ?? []), ...(form.ruleset ? [form.ruleset] : [])])].map(
							(r): [string, string] => [r, r],
						),
					])}
					{text("rule_params", "params, as JSON", { mono: true })}
					{choice("include", "answers with", [
						["", "eligible and conditional"],
						["eligible", "eligible alone"],
					])}
					{text("dense", "Merge: dense", { hint: "weight" })}
					{text("lexical", "lexical", { hint: "weight" })}
					{text("min_score", "score at least")}
					<div className="actions acts">
						<button type="button" className="quiet" onClick={() => setRules(true)} disabled={!form.collection}>
							Rules…
						</button>
						<button type="button" className="quiet" aria-expanded={more} onClick={() => setMore(!more)}>
							{more ? "Less" : "More"}
						</button>
					</div>
				</div>
				{more ? (
					<>
						<div className="field-row">
							{choice("role_mode", "roles are compared", [
								["", "exactly"],
								["any", "any of them"],
							])}
							{text("valid_at", "valid at", { hint: "2026-01-02T15:04:05Z" })}
							{text("ids", "only these ids", { wide: true })}
							{text("not_ids", "not these ids", { wide: true })}
						</div>
						<div className="field-row">
							{text("decay_field", "decay by the field", { hint: "of type time" })}
							{text("half_life", "half-life", { hint: "720h" })}
							{text("candidates", "candidates")}
							{text("ef", "ef")}
							{text("timeout", "timeout", { hint: "5s" })}
							{choice("consistency", "consistency", [
								["", "linearizable"],
								["stale", "stale"],
							])}
							<div className="actions acts">
								{check("partial", "partly, when the time is up")}
								{check("record", "record for 90 d")}
							</div>
						</div>
						<div className="field-row">
							<label className="field grow">
								Vector, in place of the text; it is not part of the address
								<input
									className="mono"
									value={vector}
									placeholder={chosen?.dim ? `${chosen.dim} numbers` : "[0.1, …]"}
									onChange={(e) => setVector(e.target.value)}
									spellCheck={false}
									autoComplete="off"
									aria-invalid={fault?.field === "vector"}
								/>
							</label>
							<label className="field">
								of the model
								<input
									value={model}
									placeholder={chosen?.model}
									onChange={(e) => setModel(e.target.value)}
									autoComplete="off"
								/>
							</label>
						</div>
					</>
				) : null}
				{fault && (asked || fault.field !== "text") ? (
					<p className="warn" role="status">
						{fault.field} {fault.text}
					</p>
				) : null}
				{chosen ? <About ns={ns} collection={chosen} /> : null}
			</form>
			{error ? <SearchFault error={error} request={asked?.request} retry={() => answer.refetch()} /> : null}
			{answer.isFetching ? <Loading what="the answer" /> : null}
			{answer.data && asked && !answer.isFetching ? (
				<Shown ns={ns} request={asked.request} answer={answer.data} />
			) : null}
			{rules ? (
				<RulesDialog
					ns={ns}
					collection={form.collection}
					ruleset={form.ruleset}
					onClose={() => setRules(false)}
					onPublished={(name) => {
						rulesets.refetch();
						set("ruleset")(name);
					}}
				/>
			) : null}
		</Page>
	);
}

const advanced: (keyof Form)[] = [
	"role_mode",
	"valid_at",
	"ids",
	"not_ids",
	"decay_field",
	"half_life",
	"candidates",
	"ef",
	"timeout",
	"consistency",
	"partial",
	"record",
];

/** About says what a collection has: its fields, which filters may read, and how many points. */
function About({ ns, collection }: { ns: string; collection: Schemas["Collection"] }) {
	const name = collection.name ?? "";
	const stats = useQuery({
		queryKey: ["collection", ns, name],
		queryFn: () =>
			call(api.GET("/v1/collections/{collection}/stats", { params: { path: { collection: name }, query: { ns } } })),
	});
	return (
		<details>
			<summary className="dim">
				{name}: {stats.data ? `${many(stats.data.points, "point")}, ${size(stats.data.memory_bytes)} of memory, ` : ""}
				{collection.model ?? "its own vectors"}, {collection.dim} dimensions, {collection.metric}
			</summary>
			<Facts
				items={(collection.schema ?? []).map((f) => [
					f.name,
					`${f.type}${f.gate ? `, gate: ${f.gate}` : ""}${f.index === false ? ", not indexed" : ""}${f.protected ? ", protected" : ""}`,
				])}
			/>
		</details>
	);
}

/** Marked shows an expression with the place of a fault. */
function Marked({ text, line, column }: { text: string; line: number; column: number }) {
	const m = marked(text, line, column);
	return (
		<pre className="bytes-body">
			{m.before}
			<mark title={`line ${line}, column ${column}`}>{m.at}</mark>
			{m.after}
		</pre>
	);
}

/** placeOf reads where a fault of an expression is. */
function placeOf(e: ApiError): { line: number; column: number } | undefined {
	const line = Number(e.details["line"]);
	const column = Number(e.details["column"]);
	return line > 0 && column > 0 ? { line, column } : undefined;
}

function SearchFault({ error, request, retry }: { error: ApiError; request: Request | undefined; retry: () => void }) {
	const place = placeOf(error);
	const filter = request?.gate?.filter;
	return (
		<>
			<Failed error={error} retry={retry} what="The answer" />
			{place && filter && error.field === "gate.filter" ? (
				<Panel title={`The filter, line ${place.line}, column ${place.column}`}>
					<Marked text={filter} {...place} />
				</Panel>
			) : null}
		</>
	);
}

/** took writes microseconds as milliseconds. */
function took(us: number | undefined): string {
	return us === undefined ? "" : us < 100 ? `${us} µs` : `${(us / 1000).toFixed(us < 10_000 ? 1 : 0)} ms`;
}

const blockers: [keyof Schemas["BlockedBy"], string][] = [
	["ids", "ids"],
	["role", "role"],
	["credential", "credential"],
	["block", "block"],
	["filter", "filter"],
];

/** Shown is an answer: the funnel, the rows, and what one may ask about it. */
function Shown({ ns, request, answer }: { ns: string; request: Request; answer: Answer }) {
	const results = answer.results ?? [];
	const judged = answer.judge;
	const columns: Column<Result>[] = [
		{ id: "place", name: "#", num: true, cell: (_, i) => i + 1 },
		{ id: "id", name: "id", cell: (r) => <span className="mono">{r.id}</span> },
		{ id: "score", name: "score", num: true, cell: (r) => (r.score ?? 0).toFixed(6) },
		...(request.explain
			? ([
					{ id: "dense", name: "dense", num: true, from: 600, cell: (r) => part(r.parts?.dense) },
					{ id: "lex", name: "lexical", num: true, from: 600, cell: (r) => part(r.parts?.lexical) },
					{ id: "judge", name: "judge", num: true, from: 600, cell: (r) => part(r.judge_score) },
					{ id: "decay", name: "decay", num: true, from: 900, cell: (r) => part(r.parts?.decay) },
				] satisfies Column<Result>[])
			: []),
		{ id: "verdict", name: "verdict", cell: (r) => <Verdict verdict={r.verdict} /> },
		{ id: "rules", name: "rules", from: 900, cell: (r) => <Reasons result={r} /> },
		{
			id: "payload",
			name: "payload",
			grow: true,
			from: 1200,
			cell: (r) => (
				<span className="mono dim">{r.payload ? visible(JSON.stringify(r.payload).slice(0, 200)) : ""}</span>
			),
		},
	];
	return (
		<>
			{answer.gap ? (
				<p className="warn">
					⚠ The time was up in {answer.gap.stage}
					{answer.gap.partitions?.length ? ` of p${answer.gap.partitions.join(", p")}` : ""}:{" "}
					{many(answer.gap.unjudged, "row that passes", "rows that pass")} the gate
					{answer.gap.unjudged === 1 ? " was" : " were"} not judged.
				</p>
			) : null}
			{answer.degraded ? <p className="warn">⚠ degraded: {answer.degraded}</p> : null}
			<dl className="funnel">
				<Stage name="GATE" took={answer.took_us?.gate}>
					<strong className="num">
						{count(answer.gate?.considered)} → {count(answer.gate?.passed)}
					</strong>
					{blockers
						.filter(([k]) => (answer.gate?.blocked_by?.[k] ?? 0) > 0)
						.map(([k, word]) => (
							<span key={k}>
								{word} −{count(answer.gate?.blocked_by?.[k])}
							</span>
						))}
				</Stage>
				<Stage name="RETRIEVE" took={answer.took_us?.retrieve}>
					<span>plan {answer.plan}</span>
					{answer.plan_numbers ? (
						<>
							<span>compared {count(answer.plan_numbers.compared)}</span>
							<span>ef {count(answer.plan_numbers.ef)}</span>
							<span>rounds {count(answer.plan_numbers.rounds)}</span>
							<span>
								graph {count(answer.plan_numbers.graph_rows)} + tail {count(answer.plan_numbers.tail_rows)}
							</span>
						</>
					) : null}
				</Stage>
				<Stage name="JUDGE" took={answer.took_us?.judge}>
					{judged ? (
						<>
							<strong>{count(judged.judged)} judged</strong>
							<span>blocked {count(judged.blocked)}</span>
							<span>conditional {count(judged.conditional)}</span>
							<span>{judged.ruleset}</span>
						</>
					) : (
						<span className="dim">no ruleset</span>
					)}
				</Stage>
				<Stage name="MERGE" took={answer.took_us?.merge}>
					<strong>{many(results.length, "result")}</strong>
					{request.merge?.min_score === undefined ? null : <span>score at least {request.merge.min_score}</span>}
					<span className="dim">
						{answer.embedder ? `${answer.embedder}${answer.semantic ? "" : " (counts words)"}, ` : ""}
						{answer.consistency}, as of{" "}
						<span className="mono">{(answer.at ?? []).map((a) => `p${a.partition}@${a.index}`).join(" ")}</span>
						{answer.took_us?.embed ? `, embed ${took(answer.took_us.embed)}` : ""}
					</span>
					{answer.search_id ? (
						<span>
							recorded for 90 d as <span className="mono">{answer.search_id}</span>{" "}
							<Copy text={answer.search_id} label="Copy the id of the recording" />
						</span>
					) : null}
				</Stage>
			</dl>
			<Grid
				label="Results"
				columns={columns}
				rows={results}
				id={(r) => r.id ?? ""}
				detail={(r) => <Detail result={r} />}
				empty={<Empty>No row passes gate, judge and merge. The funnel says where they stopped.</Empty>}
			/>
			<WhyNot ns={ns} request={request} answer={answer} />
		</>
	);
}

const part = (n: number | undefined) => (n === undefined ? "–" : n.toFixed(n < 10 ? 4 : 2));

function Stage({ name, took: us, children }: { name: string; took: number | undefined; children: ReactNode }) {
	return (
		<div>
			<dt>{name}</dt>
			<dd>
				{children}
				{us === undefined ? null : <span className="dim took">{took(us)}</span>}
			</dd>
		</div>
	);
}

function Verdict({ verdict }: { verdict: string | undefined }) {
	if (verdict === "conditional") return <span className="state hue-blocked">◐ conditional</span>;
	return <span className="state hue-completed">✓ {verdict ?? "eligible"}</span>;
}

/** Reasons are the rules that stand against a row; the expanded row has all. */
function Reasons({ result }: { result: Result }) {
	const against = (result.reasons ?? []).filter((r) => !r.ok || r.missing);
	if (against.length === 0) return <span className="dim">{result.reasons?.length ? "none against it" : "–"}</span>;
	return (
		<span>
			{visible(
				against
					.map((r) => `${r.rule}${r.reason ? `: ${r.reason}` : ""}${r.missing ? " (a field is missing)" : ""}`)
					.join(" · "),
			)}
		</span>
	);
}

function Detail({ result }: { result: Result }) {
	return (
		<div className="columns">
			<div>
				<Facts
					items={[
						[
							"version",
							<span key="v" className="mono">
								{result.version}
							</span>,
						],
						["score", (result.score ?? 0).toString()],
						...(result.parts
							? ([
									["dense", String(result.parts.dense ?? "–")],
									["lexical", String(result.parts.lexical ?? "–")],
									["boost", String(result.parts.boost ?? "–")],
									["decay", String(result.parts.decay ?? "–")],
									["judge", String(result.judge_score ?? "–")],
								] as [string, string][])
							: []),
					]}
				/>
				{result.reasons?.length ? (
					<Table
						label={`Rules on ${result.id}`}
						columns={[
							{ id: "rule", name: "rule", cell: (r) => r.rule },
							{
								id: "against",
								name: "stands against it",
								cell: (r) => `${r.ok ? "no" : "✕ yes"}${r.missing ? ", a field is missing" : ""}`,
							},
							{ id: "reason", name: "reason", cell: (r) => r.reason },
						]}
						rows={result.reasons}
						id={(r) => r.rule}
					/>
				) : null}
			</div>
			<pre>{result.payload ? visible(jsonText(result.payload)) : "no payload"}</pre>
		</div>
	);
}

/** WhyNot says where the search stopped a row, by asking the same about that row alone. */
function WhyNot({ ns, request, answer }: { ns: string; request: Request; answer: Answer }) {
	const [id, setId] = useState("");
	const [asked, ask] = useState("");
	const query = useQuery({
		queryKey: ["why not", ns, request, asked],
		enabled: asked !== "",
		retry: false,
		queryFn: () => call(api.POST("/v1/matrix/search", { params: { query: { ns } }, body: only(request, asked) })),
	});
	return (
		<form
			className="selection"
			onSubmit={(e) => {
				e.preventDefault();
				ask(id.trim());
			}}
		>
			<label>
				Why is{" "}
				<input value={id} onChange={(e) => setId(e.target.value)} placeholder="id" size={14} autoComplete="off" /> not
				here?
			</label>
			<button type="submit" className="plain" disabled={id.trim() === ""}>
				Ask
			</button>
			<span role="status">
				{query.data && asked ? (
					<>
						<strong className="mono">{asked}</strong> {whyNot(request, asked, answer, query.data)}
					</>
				) : null}
				{query.error ? `${asApiError(query.error).code}: ${asApiError(query.error).message}` : null}
			</span>
		</form>
	);
}

const exampleRules = [{ id: "junior", when: "years < 2", severity: "conditional", reason: "less than two years" }];

/** RulesDialog reads a ruleset, and publishes its next version. A fault is marked at its rule, line and column. */
function RulesDialog({
	ns,
	collection,
	ruleset,
	onClose,
	onPublished,
}: {
	ns: string;
	collection: string;
	ruleset: string;
	onClose: () => void;
	onPublished: (ruleset: string) => void;
}) {
	const queries = useQueryClient();
	const [name, setName] = useState(ruleset.replace(/@.*/, ""));
	const [text, setText] = useState<string>();
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const [fault, setFault] = useState("");
	const [sent, setSent] = useState<{ id?: string; when?: string }[]>([]);
	const found = useQuery({
		queryKey: ["ruleset", ns, ruleset],
		enabled: ruleset !== "",
		queryFn: () => call(api.GET("/v1/rulesets/{ruleset}", { params: { path: { ruleset }, query: { ns } } })),
	});
	const shown = text ?? (ruleset === "" ? jsonText(exampleRules) : found.data ? jsonText(found.data.rules) : "");
	const publish = async () => {
		if (busy) return;
		let list: unknown;
		try {
			list = JSON.parse(shown);
			setFault("");
		} catch (e) {
			setFault((e as Error).message);
			return;
		}
		setBusy(true);
		setError(undefined);
		setSent(Array.isArray(list) ? (list as { id?: string; when?: string }[]) : []);
		try {
			const a = await call(
				api.PUT("/v1/rulesets/{ruleset}", {
					params: { path: { ruleset: name }, query: { ns } },
					body: { collection: found.data?.collection ?? collection, rules: list as never },
				}),
			);
			toast(a.replayed ? `${name}@${a.number} has these rules already` : `Published ${name}@${a.number}`);
			queries.invalidateQueries({ queryKey: ["ruleset", ns] });
			onPublished(`${name}@${a.number}`);
			onClose();
		} catch (e) {
			setError(asApiError(e));
			setBusy(false);
		}
	};
	const place = error ? placeOf(error) : undefined;
	const bad = place ? sent.find((r) => r.id && error?.message.startsWith(`rules: rule ${r.id}: `)) : undefined;
	return (
		<Dialog title={ruleset ? `Rules of ${ruleset}` : "A new ruleset"} onClose={onClose} wide>
			{found.error ? <Failed error={asApiError(found.error)} what="The ruleset" /> : null}
			<label className="field">
				Name
				<input value={name} onChange={(e) => setName(e.target.value.trim())} autoComplete="off" spellCheck={false} />
			</label>
			<label className="field">
				Rules as JSON, in the order in which they are judged
				{/* What is typed before the rules are there would be mixed with them. */}
				<textarea
					rows={16}
					value={shown}
					readOnly={found.isLoading}
					onChange={(e) => setText(e.target.value)}
					spellCheck={false}
				/>
			</label>
			{fault ? (
				<p className="failed" role="alert">
					This is not JSON: {fault}
				</p>
			) : null}
			{error ? <NotDone error={error} /> : null}
			{place && bad?.when ? (
				<>
					<p>
						Rule <strong className="mono">{bad.id}</strong>, line {place.line}, column {place.column}:
					</p>
					<Marked text={bad.when} {...place} />
				</>
			) : null}
			<footer>
				<span className="dim">takes the scope search:admin; a version never changes</span>
				<button type="button" className="plain" onClick={onClose}>
					Keep
				</button>
				<Button kind="main" needs="search:admin" disabled={busy || !name || shown === ""} onClick={publish}>
					{error?.outcome === "unknown" ? "Ask again" : "Publish the next version"}
				</Button>
			</footer>
		</Dialog>
	);
}
