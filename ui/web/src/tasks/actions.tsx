import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { useAct } from "../act";
import { api, call, gone, newRequestId, raw, type Schemas } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { tail } from "../format";
import { toBase64 } from "../key-text";
import { Button, Loading, NotDone, ReadFailed } from "../parts/basic";
import { textOf } from "../parts/bytes";
import { Confirm, Dialog } from "../parts/dialog";
import { labelLines, localInput, readLabels } from "../parts/fields";
import type { Task } from "./filter";

export const scopes = {
	operate: "task:operate|admin",
	cancel: "task:create|task:operate|admin",
	edit: "task:create|admin",
	delete: "admin",
};

interface Action {
	name: string;
	needs: string;
	letter?: string;
	danger?: boolean;
	run: () => void;
	busy?: boolean;
}

type Open = "cancel" | "force" | "edit" | "delete";

/** useTaskActions is what can be done to a task in its state, and the dialog that is open. */
export function useTaskActions(ns: string, task: Task | undefined): { actions: Action[]; dialog: ReactNode } {
	const id = task?.id ?? "";
	const [open, setOpen] = useState<Open>();
	// One id for each opening of a dialog: asking again after no answer does it once.
	const [request, setRequest] = useState("");
	// The try that the dialog was opened on. Another one may run by the time that it is asked again: that is not the one to release.
	const [attempt, setAttempt] = useState<number>();
	const queries = useQueryClient();
	const navigate = useNavigate();
	const params = { path: { id }, query: { ns } };
	const [retry, retrying] = useAct<void, unknown>({
		name: () => `Retry ${tail(id)}`,
		run: (_, request_id) => call(api.POST("/v1/tasks/{id}/retry", { params, body: { request_id } })),
	});
	const [runNow, runningNow] = useAct<void, unknown>({
		name: () => `Run ${tail(id)} now`,
		run: () => call(api.POST("/v1/tasks/{id}/run-now", { params })),
	});
	const dialogOf = (d: Open) => () => {
		setRequest(newRequestId());
		setAttempt(task?.attempt);
		setOpen(d);
	};
	const state = task?.state;
	const running = state === "running";
	const waits = state === "ready" || state === "scheduled" || state === "blocked";
	const ended = state === "completed" || state === "dead" || state === "cancelled";
	const actions: Action[] = [];
	if (state === "dead" || state === "cancelled")
		actions.push({ name: "Retry", needs: scopes.operate, letter: "r", run: () => void retry(), busy: retrying });
	if (state === "scheduled")
		actions.push({ name: "Run now", needs: scopes.operate, run: () => void runNow(), busy: runningNow });
	if (waits || state === "dead") actions.push({ name: "Edit…", needs: scopes.edit, run: dialogOf("edit") });
	if (running) actions.push({ name: "Force release…", needs: scopes.operate, run: dialogOf("force") });
	if (waits || running)
		actions.push({ name: "Cancel…", needs: scopes.cancel, letter: "c", danger: true, run: dialogOf("cancel") });
	if (ended) actions.push({ name: "Delete…", needs: scopes.delete, danger: true, run: dialogOf("delete") });
	const close = () => setOpen(undefined);
	const after = () => queries.invalidateQueries();
	let dialog: ReactNode = null;
	if (task && open === "cancel")
		dialog = (
			<CancelDialog
				task={task}
				onClose={close}
				send={(body) =>
					call(api.POST("/v1/tasks/{id}/cancel", { params, body: { ...body, request_id: request } })).finally(after)
				}
			/>
		);
	else if (task && open === "force")
		dialog = (
			<Confirm
				title={`Force release ${tail(id)}?`}
				needs={scopes.operate}
				verb="Force release"
				what={
					<p>
						The token of try {attempt} is retired at once:{" "}
						{task.attempt === attempt ? (task.worker ?? "its worker") : "its worker"} can change nothing with it any
						more. The task is ready again at its old place.
					</p>
				}
				lost="What the worker did so far outside of Millrace is not undone, and nothing of it is committed. It may still run for a while beside the next try."
				onClose={close}
				onConfirm={() =>
					call(
						api.POST("/v1/tasks/{id}/force-release", {
							params,
							body: { request_id: request, ...(attempt === undefined ? {} : { attempt }) },
						}),
					).finally(after)
				}
			/>
		);
	else if (task && open === "delete")
		dialog = (
			<Confirm
				title={`Delete ${tail(id)}?`}
				needs={scopes.delete}
				verb="Delete"
				what={<p>The task goes with its payload, its result, its attempts and its log.</p>}
				lost={
					state === "completed"
						? "This cannot be undone. Keys, refs, points and tasks that it wrote stay as they are."
						: "This cannot be undone: the task cannot be retried any more."
				}
				onClose={close}
				onConfirm={async () => {
					await gone(api.DELETE("/v1/tasks/{id}", { params }));
					navigate({ to: "/$ns/tasks", params: { ns } });
				}}
			/>
		);
	else if (task && open === "edit")
		dialog = <EditDialog ns={ns} task={task} request={request} onClose={close} onDone={after} />;
	return { actions, dialog };
}

function CancelDialog({
	task,
	send,
	onClose,
}: {
	task: Task;
	send: (body: { reason?: string; force?: boolean }) => Promise<unknown>;
	onClose: () => void;
}) {
	const [force, setForce] = useState(false);
	const running = task.state === "running";
	return (
		<Confirm
			title={`Cancel ${tail(task.id ?? "")}?`}
			needs={scopes.cancel}
			verb="Cancel the task"
			reason
			what={
				<p>
					{running
						? force
							? `The lease of ${task.worker ?? "its worker"} is taken at once: nothing of this try is committed.`
							: `${task.worker ?? "Its worker"} is told to stop. The task is cancelled when it confirms, or when the time that the queue gives for it (cancel_grace) is over.`
						: "The task will not run. It can be retried while it is kept."}
				</p>
			}
			lost={running ? "What the worker did so far outside of Millrace is not undone." : undefined}
			onClose={onClose}
			onConfirm={(reason) => send({ ...(reason ? { reason } : {}), ...(force ? { force } : {}) })}
		>
			{running ? (
				<label className="check">
					<input type="checkbox" checked={force} onChange={(e) => setForce(e.target.checked)} />
					do not wait for the worker
				</label>
			) : null}
		</Confirm>
	);
}

/** A payload that is longer than this is not edited in a page. */
const mostEdited = 65_536;

function EditDialog({
	ns,
	task,
	request,
	onClose,
	onDone,
}: {
	ns: string;
	task: Task;
	request: string;
	onClose: () => void;
	onDone: () => void;
}) {
	const id = task.id ?? "";
	const query = useQuery({
		queryKey: ["edited payload", ns, id, request],
		staleTime: Number.POSITIVE_INFINITY,
		queryFn: () => raw(`/v1/tasks/${encodeURIComponent(id)}/payload?max=${mostEdited}`),
	});
	if (query.error || !query.data)
		return (
			<Dialog title={`Edit ${tail(id)}`} onClose={onClose}>
				{query.error ? <ReadFailed query={query} what="The payload" /> : <Loading what="the payload" />}
				<footer>
					<Button kind="main" onClick={onClose}>
						Close
					</Button>
				</footer>
			</Dialog>
		);
	const whole = query.data.bytes.length >= query.data.size;
	const text = whole ? textOf(query.data.bytes, true) : undefined;
	return <EditForm ns={ns} task={task} request={request} payload={text} onClose={onClose} onDone={onDone} />;
}

function EditForm({
	ns,
	task,
	request,
	payload,
	onClose,
	onDone,
}: {
	ns: string;
	task: Task;
	request: string;
	payload: string | undefined;
	onClose: () => void;
	onDone: () => void;
}) {
	const id = task.id ?? "";
	const dead = task.state === "dead";
	const [text, setText] = useState(payload ?? "");
	const [priority, setPriority] = useState(String(task.priority ?? 0));
	const [runAt, setRunAt] = useState(localInput(task.run_at));
	const [labels, setLabels] = useState(labelLines(task.labels));
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const body: Schemas["UpdateRequest"] = { request_id: request };
	const changes: string[] = [];
	const json = /json/.test(task.content_type ?? "json");
	let wrong = "";
	if (payload !== undefined && text !== payload) {
		// As bytes: JSON.stringify would round numbers and put keys in another order.
		body.payload_base64 = toBase64(new TextEncoder().encode(text));
		if (task.content_type) body.content_type = task.content_type;
		changes.push("payload");
		if (json) {
			try {
				JSON.parse(text);
			} catch (e) {
				wrong = `The payload is not JSON: ${e instanceof Error ? e.message : e}`;
			}
		}
	}
	if (priority !== String(task.priority ?? 0)) {
		body.priority = Number(priority);
		changes.push("priority");
	}
	if (!dead && runAt !== localInput(task.run_at) && runAt !== "") {
		body.run_at = new Date(runAt).toISOString();
		changes.push("run at");
	}
	if (labels !== labelLines(task.labels)) {
		const read = readLabels(labels);
		if (read.wrong !== undefined) wrong = `A label is NAME=VALUE, and this is not: ${read.wrong}`;
		else if (Object.keys(read.labels).length === 0) body.clear_labels = true;
		else body.labels = read.labels;
		changes.push("labels");
	}
	const send = async () => {
		if (busy || wrong || changes.length === 0) return;
		setBusy(true);
		setError(undefined);
		try {
			await call(api.PATCH("/v1/tasks/{id}", { params: { path: { id }, query: { ns } }, body }));
			onDone();
			onClose();
		} catch (e) {
			setError(asApiError(e));
			setBusy(false);
		}
	};
	return (
		<Dialog title={`Edit ${tail(id)}`} onClose={onClose} wide>
			<form
				onSubmit={(e) => {
					e.preventDefault();
					send();
				}}
			>
				{payload === undefined ? (
					<p className="dim">The payload is not text, or longer than 64 KiB: it stays as it is.</p>
				) : (
					<label className="field">
						Payload {task.content_type ? <span className="dim">{task.content_type}</span> : null}
						<textarea rows={8} value={text} spellCheck={false} onChange={(e) => setText(e.target.value)} />
					</label>
				)}
				<div className="field-row">
					<label className="field">
						Priority, 0 to 9
						<select value={priority} onChange={(e) => setPriority(e.target.value)}>
							{[..."0123456789"].map((n) => (
								<option key={n}>{n}</option>
							))}
						</select>
					</label>
					{dead ? null : (
						<label className="field">
							Run at, in this browser's zone
							<input type="datetime-local" step={1} value={runAt} onChange={(e) => setRunAt(e.target.value)} />
						</label>
					)}
				</div>
				<label className="field">
					Labels, NAME=VALUE, one a line
					<textarea rows={3} value={labels} spellCheck={false} onChange={(e) => setLabels(e.target.value)} />
				</label>
				{wrong ? (
					<p className="lost" role="alert">
						{wrong}
					</p>
				) : null}
				{error ? <NotDone error={error} /> : null}
				<footer>
					<span className="dim">
						{changes.length === 0 ? "nothing is changed yet" : `changes ${changes.join(", ")}`} · takes the scope
						task:create or admin
					</span>
					<Button onClick={onClose}>Keep</Button>
					<Button
						kind="main"
						needs={scopes.edit}
						disabled={busy || wrong !== "" || changes.length === 0}
						onClick={send}
					>
						{error?.outcome === "unknown" ? "Ask again" : "Change"}
					</Button>
				</footer>
			</form>
		</Dialog>
	);
}
