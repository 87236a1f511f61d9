import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useAct } from "../act";
import { api, call } from "../api/client";
import { asApiError } from "../api/errors";
import { rateText } from "./bounds";
import { Confirm } from "./dialog";
import { TextField } from "./field";
import { addressable, type KeyForm, keyFormOf, keySettingsOf, keyWrong, type Lane } from "./key-share";
import { operate } from "./queue-acts";
import { Table } from "./table";
import { toast } from "./toast";

interface Pause {
	key: string;
	on: boolean;
	reason?: string;
}

const send = (queue: string, { key, on, reason }: Pause) => {
	const params = { path: { queue, key } };
	return on
		? call(api.POST("/v1/queues/{queue}/keys/{key}:pause", { params, body: reason ? { reason } : {} }))
		: call(api.POST("/v1/queues/{queue}/keys/{key}:resume", { params }));
};

/** useKeyPause pauses a key, or lets it go on. Each can be undone. */
export function useKeyPause(queue: string) {
	const [undo] = useAct({
		name: (p: Pause) => `${p.on ? "Pause" : "Resume"} key ${p.key}`,
		run: (p) => send(queue, p),
	});
	return useAct({
		name: (p: Pause) => `${p.on ? "Pause" : "Resume"} key ${p.key}`,
		run: (p) => send(queue, p),
		done: (_, p) => ({
			text: p.on ? `Key ${p.key} is paused. What runs goes on.` : `Key ${p.key} goes on.`,
			action: { name: "Undo", run: () => void undo({ key: p.key, on: !p.on }) },
		}),
	});
}

/** PauseKeyDialog pauses a key for a reason. */
export function PauseKeyDialog({ queue, name, onClose }: { queue: string; name: string; onClose: () => void }) {
	const queries = useQueryClient();
	return (
		<Confirm
			title={`Pause key ${name} of ${queue}`}
			what={<p>No task of this key is given out until it is resumed. Tasks that run go on.</p>}
			verb="Pause"
			needs={operate}
			reason
			onConfirm={async (reason) => {
				await send(queue, { key: name, on: true, reason });
				queries.invalidateQueries();
			}}
			onClose={onClose}
		/>
	);
}

/** KeyDialog sets the weight and the limits of one key: of a line, or of a key that is typed. */
export function KeyDialog({ queue, lane, onClose }: { queue: string; lane: Lane | undefined; onClose: () => void }) {
	const queries = useQueryClient();
	const [key, setKey] = useState(lane?.key ?? "");
	const was = keyFormOf(lane?.settings);
	const [form, setForm] = useState<KeyForm>(was);
	const [refused, setRefused] = useState("");
	const typed = keyWrong(form);
	const to = keySettingsOf(form);
	const changes = lane ? changed(was, form) : [];
	const input = (name: keyof KeyForm, label: string, otherwise: string) => (
		<TextField
			label={label}
			value={form[name]}
			otherwise={otherwise}
			wrong={typed[name] ?? (refused.split(".").at(-1) === name ? "was refused" : undefined)}
			onChange={(v) => {
				setForm((f) => ({ ...f, [name]: v }));
				setRefused("");
			}}
		/>
	);
	return (
		<Confirm
			wide
			title={lane ? `Weight and limits of key ${key}` : `Set a key of ${queue}`}
			what={
				<p>
					They replace those of the queue for this key. A limit below what runs stops nothing that runs. Empty fields
					leave it to the queue{lane?.settings && Object.keys(to).length === 0 ? ": all of them are empty" : ""}.
				</p>
			}
			verb="Set"
			needs="admin"
			blocked={!addressable(key) || Object.keys(typed).length > 0 || (!!lane && changes.length === 0)}
			onConfirm={async () => {
				try {
					await call(api.PUT("/v1/queues/{queue}/keys/{key}", { params: { path: { queue, key } }, body: to }));
				} catch (thrown) {
					setRefused(asApiError(thrown).field ?? "");
					throw thrown;
				}
				queries.invalidateQueries();
				toast(`Key ${key} is set.`);
			}}
			onClose={onClose}
		>
			{lane ? null : (
				<label className="field">
					Key
					<input
						value={key}
						maxLength={128}
						autoComplete="off"
						spellCheck={false}
						onChange={(e) => setKey(e.target.value)}
					/>
				</label>
			)}
			<div className="field-row">
				{input("weight", "Weight", "1")}
				{input("concurrency", "Tasks at once", "the queue's")}
				{input("limit", "Rate: how much", "the queue's")}
				{input("per", "Rate: in each", "such as 1m")}
				{input("burst", "Rate: burst", "as much")}
			</div>
			{changes.length > 0 ? (
				<Table
					label="What is changed"
					columns={[
						{ id: "name", name: "setting", cell: (c) => c.name },
						{ id: "from", name: "now", cell: (c) => c.from },
						{ id: "to", name: "yours", cell: (c) => c.to },
					]}
					rows={changes}
					id={(c) => c.name}
				/>
			) : null}
		</Confirm>
	);
}

/** changed lists what a form changes of a key. */
function changed(from: KeyForm, to: KeyForm) {
	const rate = (f: KeyForm) => rateText(keySettingsOf(f).rate) ?? "the queue's";
	return [
		{ name: "weight", from: from.weight || "1", to: to.weight.trim() || "1" },
		{ name: "tasks at once", from: from.concurrency || "the queue's", to: to.concurrency.trim() || "the queue's" },
		{ name: "rate", from: rate(from), to: rate(to) },
	].filter((c) => c.from !== c.to);
}
