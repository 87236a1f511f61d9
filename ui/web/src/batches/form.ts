import type { Schemas } from "../api/client";
import { toBase64 } from "../key-text";
import { isName } from "../names";
import { readLabels } from "../parts/fields";

/** Follow is a task that a batch is to make, as it is typed. Without a queue there is none. */
export interface Follow {
	queue: string;
	kind: string;
	payload: string;
}

/** Form is a batch that is to be opened, as it is typed. */
export interface Form {
	done: Follow;
	success: Follow;
	tag: string;
	labels: string;
}

const none: Follow = { queue: "", kind: "", payload: "" };
export const blank: Form = { done: none, success: none, tag: "", labels: "" };

type Wrong = Partial<Record<"tag" | "labels", string>> &
	Record<"done" | "success", Partial<Record<keyof Follow, string>>>;

/** The longest tag, in bytes, and the most labels. */
const tagBytes = 128;
const mostLabels = 16;

/** wrongOf says what is wrong with a form, before the server is asked. */
export function wrongOf(f: Form): Wrong {
	const out: Wrong = { done: wrongFollow(f.done), success: wrongFollow(f.success) };
	if (new TextEncoder().encode(f.tag).length > tagBytes) out.tag = `must have at most ${tagBytes} bytes`;
	const { labels, wrong } = readLabels(f.labels);
	if (wrong !== undefined) out.labels = `must be lines of name=value: ${wrong}`;
	else if (Object.keys(labels).length > mostLabels) out.labels = `must be at most ${mostLabels}`;
	return out;
}

function wrongFollow(f: Follow): Partial<Record<keyof Follow, string>> {
	const out: Partial<Record<keyof Follow, string>> = {};
	const queue = f.queue.trim();
	if (queue === "" && (f.kind.trim() !== "" || f.payload.trim() !== ""))
		out.queue = "is required with a kind or a payload";
	else if (queue !== "" && !isName(queue)) out.queue = "must be the name of a queue";
	if (f.kind.trim() !== "" && !isName(f.kind.trim())) out.kind = "must be letters, digits and . _ : -";
	if (f.payload.trim() !== "")
		try {
			JSON.parse(f.payload);
		} catch (e) {
			out.payload = e instanceof Error ? e.message : "is not JSON";
		}
	return out;
}

/** blocked tells whether anything is wrong. */
export const blocked = (w: Wrong): boolean =>
	!!w.tag || !!w.labels || [w.done, w.success].some((f) => Object.keys(f).length > 0);

/** opOf is the op that opens a batch as it was typed. Payloads go as they were written, byte for byte. */
export function opOf(f: Form): Schemas["BatchOpen"] {
	const { labels } = readLabels(f.labels);
	const done = followOf(f.done);
	const success = followOf(f.success);
	return {
		...(done ? { on_done: done } : {}),
		...(success ? { on_success: success } : {}),
		...(f.tag ? { tag: f.tag } : {}),
		...(Object.keys(labels).length > 0 ? { labels } : {}),
	};
}

function followOf(f: Follow): Schemas["TaskTemplate"] | undefined {
	if (f.queue.trim() === "") return undefined;
	const payload = f.payload.trim();
	return {
		queue: f.queue.trim(),
		...(f.kind.trim() ? { kind: f.kind.trim() } : {}),
		...(payload ? { payload_base64: toBase64(new TextEncoder().encode(payload)) } : {}),
	};
}

/** atField is what a refusal says of a field of the form, by its path: "ops[0].batch_open.on_done.queue". */
export function atField(
	said: { field: string | undefined; message: string } | undefined,
	path: string,
): string | undefined {
	const field = said?.field ?? "";
	const at = field.replace(/^ops\[0\]\./, "").replace(/^batch_open\./, "");
	return at === path || at.startsWith(`${path}.`) || at === `${path}_base64` ? said?.message : undefined;
}
