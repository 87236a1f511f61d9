import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, call, gone } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { isName, nameRule } from "../names";
import { useNamespace } from "../namespace";
import { Confirm } from "../parts/dialog";
import { TextField } from "../parts/field";
import { Table } from "../parts/table";
import { toast } from "../parts/toast";
import { boundsText, configOf, type Form, formOf, type Limiter, named, sameBounds, wrongOf } from "./limiter";

/** readLimiter reads a limiter, with who holds it and who names it. */
export const readLimiter = (limiter: string) =>
	call(api.GET("/v1/limiters/{limiter}", { params: { path: { limiter } } }));

/** LimiterDialog makes a limiter, or changes what one bounds. Where someone else was faster, it shows theirs. */
export function LimiterDialog({ from, onClose }: { from?: Limiter | undefined; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const [base, setBase] = useState(from);
	const [form, setForm] = useState<Form>(() => formOf(from));
	const [theirs, setTheirs] = useState(false);
	const [refused, setRefused] = useState<ApiError>();
	const typed = wrongOf(form);
	const name = form.name.trim();
	const to = configOf(form);
	const same = !!base && sameBounds(base, to);
	const field = (key: keyof Form, label: string, otherwise: string) => (
		<TextField
			label={label}
			value={form[key]}
			otherwise={otherwise}
			decimal={key !== "per"}
			wrong={key === "name" ? undefined : (typed[key] ?? at(refused, key))}
			onChange={(v) => {
				setForm((f) => ({ ...f, [key]: v }));
				setRefused(undefined);
			}}
		/>
	);
	const send = async () => {
		const version = base ? String(base.version ?? "0") : "0";
		try {
			const params = { path: { limiter: name }, header: { "If-Match": version } };
			await call(api.PUT("/v1/limiters/{limiter}", { params, body: to }));
		} catch (thrown) {
			const e = asApiError(thrown);
			setRefused(e);
			if (!e.overtaken) throw e;
			const now = await readLimiter(name);
			// An answer that was lost: what is there is what was asked for.
			if (!sameBounds(now, to)) {
				setBase(now);
				setTheirs(true);
				throw e;
			}
		}
		queries.invalidateQueries();
		if (from) toast(`${name} bounds ${boundsText(to)}.`);
		else navigate({ to: "/$ns/limits/$limiter", params: { ns, limiter: name } });
	};
	return (
		<Confirm
			wide
			title={from ? `Change ${name}` : "New limiter"}
			what={
				<p>
					{from
						? "It takes effect at once. A limit below what runs stops nothing that runs; nothing further begins until enough has ended."
						: "Tasks of any queues that name it share what it lets run."}{" "}
					Empty fields bound nothing.
				</p>
			}
			verb={theirs ? "Save over theirs" : from ? "Save" : "Make"}
			needs="admin"
			blocked={!isName(name) || Object.keys(typed).length > 0 || same}
			onConfirm={send}
			onClose={onClose}
		>
			{theirs ? (
				<p className="warn">
					{from ? "Someone else changed this limiter meanwhile" : "There is a limiter of this name already"}: version{" "}
					{base?.version} bounds {boundsText(base ?? {})}.
				</p>
			) : null}
			{from ? null : (
				<TextField
					wide
					label="Name"
					value={form.name}
					hint="of what is shared, such as a service that is called"
					wrong={name !== "" && !isName(name) ? nameRule : undefined}
					onChange={(v) => {
						setForm((f) => ({ ...f, name: v }));
						setBase(undefined);
						setTheirs(false);
					}}
				/>
			)}
			<div className="field-row">
				{field("concurrency", "Cost at once", "no bound")}
				{field("limit", "Rate: how much", "no bound")}
				{field("per", "Rate: in each", "such as 1m")}
				{field("burst", "Rate: burst", "as much")}
			</div>
			{base && !same && Object.keys(typed).length === 0 ? (
				<Table
					label="What is changed"
					columns={[
						{ id: "from", name: `version ${base.version}`, cell: (c) => c.from },
						{ id: "to", name: "yours", cell: (c) => c.to },
					]}
					rows={[{ from: boundsText(base), to: boundsText(to) }]}
					id={(c) => c.from}
				/>
			) : null}
		</Confirm>
	);
}

/** at is what a refusal says of a field. */
const at = (e: ApiError | undefined, key: keyof Form): string | undefined =>
	e && (e.field ?? "").split(".").at(-1) === key ? e.message : undefined;

/** DeleteLimiter removes a limiter, which the server refuses while anything names it. */
export function DeleteLimiter({ limiter: x, onClose }: { limiter: Limiter; onClose: () => void }) {
	const ns = useNamespace();
	const navigate = useNavigate();
	const queries = useQueryClient();
	const name = x.name ?? "";
	const by = named(x);
	return (
		<Confirm
			title={`Delete the limiter ${name}?`}
			what={
				<>
					<p>Tasks and queues that name it are refused from then on.</p>
					{by ? (
						<p className="warn">
							It is named by {by}: the server refuses to remove it until nothing names it. To lift its limits now,
							change it to bound nothing.
						</p>
					) : null}
				</>
			}
			lost="What it bounds is not kept."
			verb="Delete the limiter"
			needs="admin"
			onConfirm={async () => {
				await gone(
					api.DELETE("/v1/limiters/{limiter}", {
						params: { path: { limiter: name }, header: { "If-Match": String(x.version ?? "0") } },
					}),
				);
				// What is gone is not read again.
				await navigate({ to: "/$ns/limits", params: { ns } });
				queries.removeQueries({ predicate: (q) => q.queryKey[2] === name });
				queries.invalidateQueries();
			}}
			onClose={onClose}
		/>
	);
}
