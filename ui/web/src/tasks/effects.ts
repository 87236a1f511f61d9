import type { LinkProps } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { bytesOf, showKey } from "../key-text";

export type Effect = Schemas["Effect"];

/** Shown is an effect in words, with where it leads. */
interface Shown {
	/** Name of its shape. */
	icon: string;
	/** What kind of thing was changed: key, ref, point, task, queue … */
	noun: string;
	/** What was done to it. */
	verb: string;
	/** Its name, with the keyspace, repository, collection or queue before it. Empty where the reader may not see it. */
	target: string;
	/** What stands there after it. */
	detail: string;
	/** The same in full, for those who point at it. */
	full: string;
	link: LinkProps | undefined;
	/** Whether it still stands, in words; empty where that cannot be told. */
	now: string;
}

const nouns: Record<string, [icon: string, noun: string]> = {
	kv: ["key", "key"],
	ref: ["ref", "ref"],
	symref: ["ref", "ref"],
	vector: ["point", "point"],
	task: ["plus", "task"],
	queue: ["pause", "queue"],
	keyspace: ["key", "keyspace"],
	repo: ["ref", "repository"],
	collection: ["point", "collection"],
	ruleset: ["point", "ruleset"],
	recording: ["point", "recording"],
};

/** keyOf is the name that an effect is about, as text that shows every byte. */
export function keyOf(e: Effect): string {
	if (e.key === undefined && e.key_base64 === undefined) return "";
	return showKey(bytesOf(e.key, e.key_base64));
}

/** show says what an effect is, and where it can be looked at. */
export function show(e: Effect, ns: string): Shown {
	const op = e.op ?? "";
	const cutAt = op.indexOf("_");
	const family = op.slice(0, cutAt);
	const [icon, noun] = nouns[family] ?? ["dot", family];
	const key = keyOf(e);
	const verb = op.slice(cutAt + 1).replaceAll("_", " ");
	const range = op === "kv_delete_range";
	const name = key === "" && !range ? "" : `${key}${e.cut ? "…" : ""}${range ? "…" : ""}`;
	const space = e.space ?? "";
	const target =
		family === "task" ? name : [space, name].filter(Boolean).join(family === "ref" || family === "symref" ? " " : "/");
	const out: Shown = { icon, noun, verb, target, detail: "", full: "", link: undefined, now: "" };
	const whole = key !== "" && !e.cut;
	const rev = e.rev && e.rev !== "0" ? e.rev : "";
	switch (noun) {
		case "key":
			if (rev && op !== "kv_delete") out.detail = `rev ${rev}`;
			if (whole && range)
				out.link = { to: "/$ns/kv/$keyspace", params: { ns, keyspace: space }, search: { prefix: key } };
			else if (whole) out.link = { to: "/$ns/kv/$keyspace", params: { ns, keyspace: space }, search: { key } };
			break;
		case "ref":
			if (e.to) {
				out.detail = `→ ${/^[0-9a-f]{40}/.test(e.to) ? `${e.to.slice(0, 8)}…` : e.to}`;
				out.full = e.to;
			}
			if (whole) out.link = { to: "/$ns/repos/$repo", params: { ns, repo: space }, search: { ref: key } };
			break;
		case "point":
			if (rev && op !== "vector_delete") out.detail = `version ${rev}`;
			if (whole) out.link = { to: "/$ns/search", params: { ns }, search: { collection: space, id: key } };
			break;
		case "task":
			if (op === "task_create" && space) out.detail = `in ${space}`;
			if (whole) out.link = { to: "/$ns/tasks/$id", params: { ns, id: key } };
			break;
		case "queue":
			out.link = space ? { to: "/$ns/queues/$queue", params: { ns, queue: space } } : undefined;
			break;
	}
	out.now = standing(op, e.now);
	return out;
}

/** standing says whether what an op did still stands. */
function standing(op: string, now: Effect["now"]): string {
	const removes = op === "kv_delete" || op === "vector_delete" || op === "ref_delete" || op === "symref_delete";
	switch (now) {
		case "current":
			return removes ? "still absent" : op === "task_create" ? "still there" : "still current";
		case "changed":
			return removes ? "written again since" : "overwritten since";
		case "gone":
			return "deleted since";
	}
	return "";
}
