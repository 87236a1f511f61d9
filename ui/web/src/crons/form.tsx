import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import { api, call, raw } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { fromBase64, toBase64 } from "../key-text";
import { useNamespace } from "../namespace";
import { Button, Loading, ReadFailed } from "../parts/basic";
import { textOf } from "../parts/bytes";
import { Confirm, Dialog } from "../parts/dialog";
import { Diff } from "../parts/diff-view";
import { Field, TextField } from "../parts/field";
import { partOf } from "../parts/json-part";
import { toast } from "../parts/toast";
import {
	blank,
	type Cron,
	catchUps,
	configOf,
	configText,
	type Form,
	fieldOf,
	formOf,
	missing,
	overlaps,
	settingsOf,
	wrongOf,
} from "./cron";
import { PreviewView, usePreview } from "./preview";

const utf8 = (text: string) => toBase64(new TextEncoder().encode(text));

/** Read is a cron with its payload as it is stored: numbers stay as they were written. */
interface Read {
	cron: Cron;
	payload: string | undefined;
}

/** readCron reads a cron past the typed routes, for the bytes of its payload. */
export async function readCron(name: string): Promise<Read> {
	const text = new TextDecoder().decode((await raw(`/v1/crons/${encodeURIComponent(name)}`)).bytes);
	const cron = JSON.parse(text) as Cron;
	const base64 = cron.template.payload_base64;
	const payload = base64 ? textOf(fromBase64(base64), true) : (partOf(text, ["template", "payload"]) ?? "");
	return { cron, payload };
}

/** useCronSource reads a cron with the bytes of its payload. */
export function useCronSource(name: string) {
	const ns = useNamespace();
	return useQuery({ queryKey: [ns, "cron source", name], queryFn: () => readCron(name), refetchOnWindowFocus: false });
}

/** NewCron makes a cron. */
export function NewCron({ onClose }: { onClose: () => void }) {
	return <CronForm from={undefined} onClose={onClose} />;
}

/** EditCron changes a cron. What it is by now is read when the dialog opens. */
export function EditCron({ name, onClose }: { name: string; onClose: () => void }) {
	const ns = useNamespace();
	const query = useQuery({
		queryKey: [ns, "edited cron", name],
		queryFn: () => readCron(name),
		gcTime: 0,
		refetchOnWindowFocus: false,
		refetchOnReconnect: false,
	});
	const [from, setFrom] = useState<Read>();
	if (query.data && !from && !query.isFetching) setFrom(query.data);
	if (from) return <CronForm from={from} onClose={onClose} />;
	return (
		<Dialog title={`Edit ${name}`} onClose={onClose}>
			{query.error ? <ReadFailed query={query} what="The cron" /> : <Loading what="the cron" />}
			<footer>
				<Button kind="main" onClick={onClose}>
					Close
				</Button>
			</footer>
		</Dialog>
	);
}

function CronForm({ from, onClose }: { from: Read | undefined; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const [base, setBase] = useState(from?.cron);
	const [form, setForm] = useState<Form>(() => (from ? formOf(from.cron, from.payload) : blank));
	const [theirs, setTheirs] = useState<Read>();
	const [refused, setRefused] = useState<ApiError>();
	const zones = useId();
	const json = !base?.template.content_type || /json/.test(base.template.content_type);
	const typed = useMemo(() => wrongOf(form, json), [form, json]);
	const field = fieldOf(refused?.field);
	const wrong: Partial<Record<keyof Form, string>> = refused && field ? { [field]: refused.message, ...typed } : typed;
	const said = usePreview(form.schedule, form.zone);
	const bad = said.error && fieldOf(said.error.field);
	const put = <K extends keyof Form>(key: K, value: Form[K]) => {
		setForm((f) => ({ ...f, [key]: value }));
		setRefused(undefined);
	};
	const send = async () => {
		const body = configOf(base, form, utf8);
		const path = { cron: form.name };
		const version = base ? String(base.version ?? "0") : "0";
		try {
			await call(api.PUT("/v1/crons/{cron}", { params: { path, header: { "If-Match": version } }, body }));
		} catch (thrown) {
			const e = asApiError(thrown);
			setRefused(e);
			if (!e.overtaken) throw e;
			const now = await readCron(form.name);
			// An answer that was lost: what is there is what was asked for.
			const asked = configText(configOf(now.cron, form, utf8), form.payload);
			if (asked !== configText(configOf(now.cron, formOf(now.cron, now.payload), utf8), now.payload)) {
				setTheirs(now);
				setBase(now.cron);
				throw e;
			}
		}
		queries.invalidateQueries();
		if (from) toast(`${form.name} is set.`);
		else navigate({ to: "/$ns/crons/$cron", params: { ns, cron: form.name } });
	};
	const text = (
		key: keyof Form,
		label: string,
		more: { hint?: string; otherwise?: string; wide?: boolean; list?: string } = {},
	) => (
		<TextField
			key={key}
			label={label}
			value={String(form[key] ?? "")}
			wrong={wrong[key] ?? (bad === key ? " " : undefined)}
			onChange={(v) => put(key, v)}
			{...more}
		/>
	);
	return (
		<Confirm
			wide
			title={from ? `Edit ${form.name}` : "New cron"}
			what={
				from ? (
					<p>
						Version {base?.version} is replaced. With another schedule, zone, start or end its slots are counted from
						now on; tasks that were made stay as they are.
					</p>
				) : (
					<p>It makes a task of a queue at each of its slots.</p>
				)
			}
			verb={theirs ? "Save over theirs" : from ? "Save" : "Make"}
			needs="admin"
			blocked={missing(form) || Object.keys(typed).length > 0 || !!said.error}
			onConfirm={send}
			onClose={onClose}
		>
			{theirs ? (
				<>
					<p className="warn">
						{from ? "Someone else changed this cron meanwhile" : "There is a cron of this name already"}: below is what
						yours would change of version {theirs.cron.version}.
					</p>
					<Diff
						from={configText(settingsOf(theirs.cron), theirs.payload)}
						to={configText(configOf(theirs.cron, form, utf8), form.payload)}
						label={`Version ${theirs.cron.version} and yours`}
					/>
				</>
			) : null}
			<div className="cron-form">
				<section aria-label="When">
					{from ? null : text("name", "Name", { wide: true })}
					{text("schedule", "Schedule", {
						hint: "five fields as in crontab, six with seconds, @every 90s, @daily …",
						otherwise: "0 2 * * *",
						wide: true,
					})}
					{text("zone", "Zone", { otherwise: "UTC", list: zones, wide: true })}
					<datalist id={zones}>
						{zoneNames().map((z) => (
							<option key={z} value={z} />
						))}
					</datalist>
					<PreviewView schedule={form.schedule} zone={form.zone} said={said} />
					<Choice
						label="While the task before still runs"
						items={overlaps}
						value={form.overlap}
						onPick={(v) => put("overlap", v)}
					/>
					<Choice
						label="Slots that were missed"
						items={catchUps}
						value={form.catchUp}
						onPick={(v) => put("catchUp", v)}
					/>
					<div className="field-row">
						{text("jitter", "Jitter", { otherwise: "none" })}
						<Moment label="Not before" value={form.start} onPick={(v) => put("start", v)} />
						<Moment label="Not after" value={form.end} onPick={(v) => put("end", v)} />
					</div>
					{from ? null : (
						<label className="check">
							<input type="checkbox" checked={form.paused} onChange={(e) => put("paused", e.target.checked)} />
							paused at first
						</label>
					)}
				</section>
				<section aria-label="The tasks that it makes">
					<div className="field-row">
						{text("queue", "Queue")}
						{text("kind", "Kind", { otherwise: form.queue.trim() || "the queue's name" })}
						{text("priority", "Priority", { otherwise: "0" })}
						{text("key", "Key", { otherwise: "none" })}
					</div>
					{form.payload === undefined ? (
						<p className="dim">The payload is not text, and stays as it is.</p>
					) : (
						<Field
							label={json ? "Payload, as JSON" : `Payload, ${base?.template.content_type}`}
							wrong={wrong.payload}
							wide
						>
							{(id, note) => (
								<textarea
									id={id}
									rows={6}
									value={form.payload}
									spellCheck={false}
									aria-invalid={!!wrong.payload}
									aria-describedby={note}
									onChange={(e) => put("payload", e.target.value)}
								/>
							)}
						</Field>
					)}
					<details>
						<summary>more of the tasks</summary>
						<div className="field-row">
							{text("attempts", "Failures", { otherwise: "the queue's" })}
							{text("lease", "Lease", { otherwise: "the queue's" })}
							{text("tag", "Tag", { otherwise: "none" })}
						</div>
						<Field label="Labels, name=value, a line each" wrong={wrong.labels} wide>
							{(id, note) => (
								<textarea
									id={id}
									rows={2}
									value={form.labels}
									spellCheck={false}
									aria-invalid={!!wrong.labels}
									aria-describedby={note}
									onChange={(e) => put("labels", e.target.value)}
								/>
							)}
						</Field>
					</details>
				</section>
			</div>
		</Confirm>
	);
}

/** zoneNames are zones that this browser knows, as a help to type: which there are, the server says. */
function zoneNames(): string[] {
	return Intl.supportedValuesOf?.("timeZone") ?? [];
}

function Choice<T extends string>({
	label,
	items,
	value,
	onPick,
}: {
	label: string;
	items: [T, string][];
	value: T;
	onPick: (v: T) => void;
}) {
	return (
		<label className="field">
			{label}
			<select value={value} onChange={(e) => onPick(e.target.value as T)}>
				{items.map(([v, says]) => (
					<option key={v} value={v}>
						{says}
					</option>
				))}
			</select>
		</label>
	);
}

/** Moment is a time in the zone of the browser, which it says. */
function Moment({ label, value, onPick }: { label: string; value: string; onPick: (v: string) => void }) {
	const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
	return (
		<label className="field">
			<span>
				{label} <span className="dim">{zone}</span>
			</span>
			<input type="datetime-local" step="1" value={value} onChange={(e) => onPick(e.target.value)} />
		</label>
	);
}
