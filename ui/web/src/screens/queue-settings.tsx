import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, call } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { many } from "../format";
import { isName } from "../names";
import { useNamespace } from "../namespace";
import { Button, Copy, Failed, Loading, NotDone, Panel, ReadFailed } from "../parts/basic";
import { jsonText } from "../parts/config-dialog";
import { Confirm, Dialog } from "../parts/dialog";
import { Field as FormField, TextField } from "../parts/field";
import { LimiterLink, Names, QueueLink } from "../parts/links";
import {
	configOf,
	diff,
	type Field,
	groups,
	isAbout,
	merge,
	normal,
	type QueueConfig,
	type Values,
	valuesOf,
	wrongOf,
} from "../parts/queue-config";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";

const read = (queue: string) => call(api.GET("/v1/queues/{queue}", { params: { path: { queue } } }));

const put = (queue: string, body: QueueConfig, version: string) =>
	call(
		api.PUT("/v1/queues/{queue}", {
			params: { path: { queue }, header: { "If-Match": version } },
			body,
		}),
	);

export function useConfig(queue: string) {
	const ns = useNamespace();
	return useQuery({
		queryKey: [ns, "queue config", queue],
		queryFn: () => read(queue),
		refetchOnWindowFocus: false,
	});
}

/** QueueSettings is the configuration of a queue as a form. What is changed is shown before it is sent, and merged where others changed it too. */
export function QueueSettings({ queue }: { queue: string }) {
	const config = useConfig(queue);
	if (config.error) return <ReadFailed query={config} what="The settings" />;
	if (!config.data) return <Loading what="the settings" />;
	return <SettingsForm key={queue} queue={queue} now={config.data} />;
}

/** LimitsDialog is the part of that form which says what may run, and in which order. */
export function LimitsDialog({ queue, onClose }: { queue: string; onClose: () => void }) {
	const config = useConfig(queue);
	return (
		<Dialog title={`Limits of ${queue}`} onClose={onClose} wide>
			{config.error ? <ReadFailed query={config} what="The settings" /> : null}
			{config.data ? (
				<SettingsForm queue={queue} now={config.data} limits onDone={onClose} />
			) : config.error ? null : (
				<Loading what="the settings" />
			)}
			<footer>
				<Button onClick={onClose} data-first="">
					Keep
				</Button>
			</footer>
		</Dialog>
	);
}

const versionOf = (c: QueueConfig) => String(c.version ?? "0");

function SettingsForm({
	queue,
	now,
	limits = false,
	onDone,
}: {
	queue: string;
	now: QueueConfig;
	/** Only what may run. */
	limits?: boolean;
	onDone?: () => void;
}) {
	const ns = useNamespace();
	const queries = useQueryClient();
	// What the form began from. A newer version is merged when the change is sent, not while the person types.
	const [base, setBase] = useState(now);
	const [yours, setYours] = useState<Values>(() => valuesOf(now));
	const [review, setReview] = useState(false);
	const [theirs, setTheirs] = useState<QueueConfig>();
	const [refused, setRefused] = useState<ApiError>();
	const was = valuesOf(base);
	const to = normal(yours);
	const changes = diff(was, to);
	const wrong = groups.some((g) => g.fields.some((f) => wrongOf(f, (yours[f.name] ?? "").trim())));
	const newer = versionOf(now) !== versionOf(base);

	const start = (from: QueueConfig) => {
		setBase(from);
		setYours(valuesOf(from));
		setTheirs(undefined);
		setRefused(undefined);
	};
	const send = async (over: QueueConfig, values: Values) => {
		try {
			await put(queue, configOf(over, values), versionOf(over));
		} catch (thrown) {
			const e = asApiError(thrown);
			if (!e.overtaken) {
				setRefused(e);
				throw e;
			}
			const found = await read(queue);
			// An answer that was lost: what is there is what was asked for.
			if (diff(valuesOf(found), values).length > 0) {
				setTheirs(found);
				setRefused(undefined);
				return;
			}
		}
		const fresh = await read(queue);
		queries.setQueryData([ns, "queue config", queue], fresh);
		start(fresh);
		queries.invalidateQueries({ queryKey: [ns, "queue keys", queue] });
		toast(`The settings of ${queue} are version ${versionOf(fresh)}.`);
		onDone?.();
	};

	return (
		<form
			onSubmit={(e) => {
				e.preventDefault();
				if (changes.length > 0 && !wrong) setReview(true);
			}}
		>
			<p className="dim">
				Version {versionOf(base)}
				{versionOf(base) === "0" ? ": nothing is set, the defaults hold" : ""}. An empty field has its default.
			</p>
			{newer ? (
				<p className="warn">
					There is version {versionOf(now)} meanwhile. Your changes are merged with it when they are sent.{" "}
					{changes.length === 0 ? (
						<button type="button" className="quiet" onClick={() => start(now)}>
							Show it
						</button>
					) : null}
				</p>
			) : null}
			{refused ? <Failed error={refused} /> : null}
			<Named config={base} />
			<Known />
			<div className="columns">
				{groups
					.filter((g) => !limits || g.limits)
					.map((g) => (
						<Panel key={g.name} title={g.name}>
							<div className="field-row">
								{g.fields.map((f) => (
									<Input
										key={f.name}
										field={f}
										value={yours[f.name] ?? ""}
										changed={was[f.name] !== to[f.name]}
										refused={isAbout(refused?.field, f) ? refused?.message : undefined}
										onChange={(v) => setYours((y) => ({ ...y, [f.name]: v }))}
									/>
								))}
							</div>
						</Panel>
					))}
			</div>
			<div className="actions">
				<Button
					kind="main"
					needs="admin"
					disabled={changes.length === 0 || wrong}
					onClick={() => setReview(true)}
					title={changes.length === 0 ? "nothing is changed" : ""}
				>
					Review {many(changes.length, "change")}…
				</Button>
				{changes.length > 0 ? (
					<button type="button" className="plain" onClick={() => start(now)}>
						Reset
					</button>
				) : null}
			</div>
			{review ? (
				<Confirm
					wide
					title={`Change the settings of ${queue}?`}
					what={
						<>
							<p>Version {versionOf(base)} is replaced. They hold for tasks from now on.</p>
							<Table
								label="What is changed"
								columns={[
									{ id: "setting", name: "setting", cell: (c) => c.label },
									{ id: "from", name: `version ${versionOf(base)}`, cell: (c) => <Value text={c.from} /> },
									{ id: "to", name: "yours", cell: (c) => <Value text={c.to} /> },
								]}
								rows={changes}
								id={(c) => c.name}
							/>
						</>
					}
					verb="Change"
					needs="admin"
					onConfirm={() => send(base, to)}
					onClose={() => setReview(false)}
				/>
			) : null}
			{theirs ? (
				<MergeDialog
					base={base}
					theirs={theirs}
					yours={to}
					onTheirs={() => start(theirs)}
					onSend={(values) => send(theirs, values)}
					onClose={() => setTheirs(undefined)}
				/>
			) : null}
		</form>
	);
}

function Value({ text }: { text: string | undefined }) {
	return text === undefined ? <span className="dim">default</span> : <span className="mono">{text}</span>;
}

function Input({
	field: f,
	value,
	changed,
	refused,
	onChange,
}: {
	field: Field;
	value: string;
	changed: boolean;
	refused: string | undefined;
	onChange: (v: string) => void;
}) {
	const around = {
		label: (
			<>
				{f.label} {changed ? <span className="hue-blocked">changed</span> : null}
			</>
		),
		wrong: wrongOf(f, value.trim()) ?? refused,
		hint: f.zero ?? (f.kind === "names" ? "at most 4, with commas" : undefined),
	};
	if (f.choices)
		return (
			<FormField {...around}>
				{(id) => (
					<select id={id} value={value} onChange={(e) => onChange(e.target.value)}>
						<option value="">{f.otherwise} (default)</option>
						{f.choices?.map((c) => (
							<option key={c}>{c}</option>
						))}
					</select>
				)}
			</FormField>
		);
	return (
		<TextField
			{...around}
			value={value}
			otherwise={f.otherwise}
			decimal={f.kind === "number"}
			onChange={onChange}
			{...(f.kind === "name" || f.kind === "names" ? { list: `known-${f.kind}` } : {})}
		/>
	);
}

/** Known are the names that fields of the form may have: queues and limiters that there are. */
function Known() {
	const ns = useNamespace();
	const queues = useQuery({
		queryKey: [ns, "known queues"],
		staleTime: 60_000,
		queryFn: () => call(api.GET("/v1/queues", { params: { query: { limit: 100 } } })),
	});
	const limiters = useQuery({
		queryKey: [ns, "known limiters"],
		staleTime: 60_000,
		queryFn: () => call(api.GET("/v1/limiters", { params: { query: { limit: 100 } } })),
	});
	return (
		<>
			<datalist id="known-name">
				{queues.data?.queues?.map((q) => (
					<option key={q.queue} value={q.queue} />
				))}
			</datalist>
			<datalist id="known-names">
				{limiters.data?.limiters?.map((x) => (
					<option key={x.name} value={x.name} />
				))}
			</datalist>
		</>
	);
}

/** Named leads to what the configuration names: its limiters, and the queue of its dead letters. */
function Named({ config: c }: { config: QueueConfig }) {
	const ns = useNamespace();
	if (!c.limiters?.length && !c.dead_letter) return null;
	return (
		<p>
			{c.limiters?.length ? (
				<>
					Limiters: <Names of={c.limiters} one={(name) => <LimiterLink ns={ns} name={name} />} />.{" "}
				</>
			) : null}
			{c.dead_letter ? (
				<>
					Copies of dead tasks go to queue <QueueLink ns={ns} queue={c.dead_letter} />.
				</>
			) : null}
		</p>
	);
}

/** MergeDialog shows what both sides changed since the form was read, and sends what they make together. */
function MergeDialog({
	base,
	theirs,
	yours,
	onTheirs,
	onSend,
	onClose,
}: {
	base: QueueConfig;
	theirs: QueueConfig;
	yours: Values;
	onTheirs: () => void;
	onSend: (values: Values) => Promise<void>;
	onClose: () => void;
}) {
	const [choice, setChoice] = useState<Record<string, "theirs" | "yours">>({});
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const was = valuesOf(base);
	const there = valuesOf(theirs);
	const { values, conflicts } = merge(was, there, yours);
	for (const name of conflicts)
		if (choice[name] === "theirs") {
			if (there[name] === undefined) delete values[name];
			else values[name] = there[name];
		}
	const rows = groups.flatMap((g) =>
		g.fields
			.filter((f) => was[f.name] !== there[f.name] || was[f.name] !== yours[f.name])
			.map((f) => ({ ...f, label: `${g.name}: ${f.label}` })),
	);
	const left = diff(there, values).length;
	const send = async () => {
		if (busy) return;
		setBusy(true);
		setError(undefined);
		try {
			await onSend(values);
		} catch (e) {
			setError(asApiError(e));
		} finally {
			setBusy(false);
		}
	};
	return (
		<Dialog title="Someone else changed the settings meanwhile" onClose={onClose} wide>
			<p>
				Nothing was changed: version {versionOf(base)} has become version {versionOf(theirs)}.
				{conflicts.length > 0 ? " Choose where both changed the same setting." : " Both changes go together."}
			</p>
			<Table
				label="What both changed"
				columns={[
					{ id: "setting", name: "setting", cell: (f) => f.label },
					{ id: "was", name: "was", cell: (f) => <Value text={was[f.name]} /> },
					{ id: "theirs", name: "theirs", cell: (f) => <Value text={there[f.name]} /> },
					{ id: "yours", name: "yours", cell: (f) => <Value text={yours[f.name]} /> },
					{
						id: "merged",
						name: "merged",
						cell: (f) =>
							conflicts.includes(f.name) ? (
								<select
									aria-label={`${f.label}: which one`}
									value={choice[f.name] ?? "yours"}
									onChange={(e) => setChoice((c) => ({ ...c, [f.name]: e.target.value as "theirs" | "yours" }))}
								>
									<option value="yours">yours: {yours[f.name] ?? "default"}</option>
									<option value="theirs">theirs: {there[f.name] ?? "default"}</option>
								</select>
							) : (
								<Value text={values[f.name]} />
							),
					},
				]}
				rows={rows}
				id={(f) => f.name}
			/>
			{error ? <NotDone error={error} /> : null}
			<footer>
				<Button onClick={onClose}>Back to the form</Button>
				<Button kind="main" onClick={onTheirs} data-first="">
					Take theirs
				</Button>
				<Button kind="danger" needs="admin" disabled={busy || left === 0} onClick={send}>
					{left === 0 ? "Nothing of yours is left" : "Send merged"}
				</Button>
			</footer>
		</Dialog>
	);
}

/** ConfigView shows the configuration as JSON. */
export function ConfigView({ queue, onClose }: { queue: string; onClose: () => void }) {
	const config = useConfig(queue);
	const text = config.data ? jsonText(config.data) : "";
	return (
		<Dialog title={`Configuration of ${queue}`} onClose={onClose} wide>
			{config.error ? (
				<ReadFailed query={config} what="The configuration" />
			) : (
				<div className="bytes-body">
					<pre>{text}</pre>
				</div>
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

/** NewQueue makes a queue, with the defaults. */
export function NewQueue({ onClose }: { onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const [name, setName] = useState("");
	const good = isName(name);
	return (
		<Confirm
			title="New queue"
			what={<p>It is made with the defaults. A queue also appears by itself, with its first task.</p>}
			verb="Make"
			needs="admin"
			blocked={!good}
			onConfirm={async () => {
				await put(name, {}, "0");
				queries.invalidateQueries();
				navigate({ to: "/$ns/queues/$queue/$tab", params: { ns, queue: name, tab: "settings" } });
			}}
			onClose={onClose}
		>
			<label className="field">
				<span>
					Name <span className="dim">letters, digits and . _ : - · at most 128</span>
				</span>
				<input
					value={name}
					onChange={(e) => setName(e.target.value.trim())}
					aria-invalid={name !== "" && !good}
					autoComplete="off"
					spellCheck={false}
				/>
			</label>
		</Confirm>
	);
}
