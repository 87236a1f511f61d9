import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { api, call, newRequestId } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useNamespace } from "../namespace";
import { Confirm } from "../parts/dialog";
import { Field, TextField } from "../parts/field";
import { atField, blank, blocked, type Follow, type Form, opOf, wrongOf } from "./form";

/**
 * OpenBatch opens a batch and leads to it. It is a commit of one op, since that can be asked for again under its request id also with a tag,
 * which says where the batch is.
 */
export function OpenBatch({ onClose }: { onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const [form, setForm] = useState<Form>(blank);
	const [refused, setRefused] = useState<ApiError>();
	const sent = useRef({ what: "", id: "" });
	const typed = wrongOf(form);
	const put = (more: Partial<Form>) => {
		setForm((f) => ({ ...f, ...more }));
		setRefused(undefined);
	};
	const said = refused && { field: refused.field, message: refused.message };
	const send = async () => {
		const batch_open = opOf(form);
		// The same content asks again under the same id; other content is another batch.
		const what = JSON.stringify(batch_open);
		if (sent.current.what !== what) sent.current = { what, id: newRequestId() };
		let batch: string | undefined;
		try {
			const answer = await call(
				api.POST("/v1/commit", { body: { request_id: sent.current.id, ops: [{ batch_open }] } }),
			);
			batch = answer.results?.[0]?.batch;
		} catch (thrown) {
			const e = asApiError(thrown);
			setRefused(e);
			throw e;
		}
		queries.invalidateQueries();
		if (batch) navigate({ to: "/$ns/batches/$batch", params: { ns, batch } });
	};
	const follow = (key: "done" | "success", title: string) => {
		const f = form[key];
		const set = (more: Partial<Follow>) => put({ [key]: { ...f, ...more } });
		const wrong = (name: keyof Follow) => typed[key][name] ?? atField(said, `on_${key}.${name}`);
		return (
			<section aria-label={title}>
				<h3>{title}</h3>
				<div className="field-row">
					<TextField
						label="Queue"
						value={f.queue}
						otherwise="none"
						wrong={wrong("queue")}
						onChange={(queue) => set({ queue })}
					/>
					<TextField
						label="Kind"
						value={f.kind}
						otherwise={f.queue.trim() || "the queue's name"}
						wrong={wrong("kind")}
						onChange={(kind) => set({ kind })}
					/>
				</div>
				<Field label="Payload, as JSON" wrong={wrong("payload")} wide>
					{(id, note) => (
						<textarea
							id={id}
							rows={3}
							value={f.payload}
							spellCheck={false}
							aria-invalid={!!wrong("payload")}
							aria-describedby={note}
							onChange={(e) => set({ payload: e.target.value })}
						/>
					)}
				</Field>
			</section>
		);
	};
	const labelsWrong = typed.labels ?? atField(said, "labels");
	return (
		<Confirm
			wide
			title="Open a batch"
			what={
				<p>
					It takes tasks that name it when they are created, until it is sealed. When it is sealed and all of its tasks
					have ended it makes the tasks below.
				</p>
			}
			verb="Open"
			needs="task:create"
			blocked={blocked(typed)}
			onConfirm={send}
			onClose={onClose}
		>
			<div className="cron-form">
				{follow("done", "When all have ended")}
				{follow("success", "If each was completed")}
			</div>
			<div className="field-row">
				<TextField
					label="Tag"
					value={form.tag}
					otherwise="none"
					hint="its tasks are in the partition of this tag"
					wrong={typed.tag ?? atField(said, "tag")}
					onChange={(tag) => put({ tag })}
				/>
			</div>
			<Field label="Labels, name=value, a line each" wrong={labelsWrong} wide>
				{(id, note) => (
					<textarea
						id={id}
						rows={2}
						value={form.labels}
						spellCheck={false}
						aria-invalid={!!labelsWrong}
						aria-describedby={note}
						onChange={(e) => put({ labels: e.target.value })}
					/>
				)}
			</Field>
		</Confirm>
	);
}
