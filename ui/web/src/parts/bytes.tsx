import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { type Raw, raw } from "../api/client";
import { asApiError } from "../api/errors";
import { size, visible } from "../format";
import { showKey } from "../key-text";
import { Copy, Loading, ReadFailed, Segments } from "./basic";
import { toast } from "./toast";

/** A page shows this many bytes; the rest can be saved. */
const head = 65_536;

type View = "text" | "json" | "hex";

/** textOf reads bytes as UTF-8; undefined where they are not. */
export function textOf(bytes: Uint8Array, whole: boolean): string | undefined {
	try {
		// The head of a longer text may end in the middle of a character.
		return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: !whole });
	} catch {
		return undefined;
	}
}

/** hex writes 16 bytes a line: offset, bytes, and what can be read of them. */
export function hex(bytes: Uint8Array): string {
	const lines: string[] = [];
	for (let i = 0; i < bytes.length; i += 16) {
		const part = [...bytes.subarray(i, i + 16)];
		const codes = part.map((b) => b.toString(16).padStart(2, "0")).join(" ");
		const text = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
		lines.push(`${i.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${text}`);
	}
	return lines.join("\n");
}

/**
 * indented lays JSON out by its own characters: numbers, the order of keys and keys that come twice stay as they were written. undefined
 * where the text is not JSON.
 */
export function indented(text: string): string | undefined {
	try {
		JSON.parse(text);
	} catch {
		return undefined;
	}
	let out = "";
	let depth = 0;
	let i = 0;
	const line = () => `\n${"  ".repeat(depth)}`;
	while (i < text.length) {
		const c = text[i]!;
		if (c === '"') {
			const from = i++;
			while (text[i] !== '"') i += text[i] === "\\" ? 2 : 1;
			out += text.slice(from, ++i);
			continue;
		}
		i++;
		if (c === "{" || c === "[") {
			while (/\s/.test(text[i] ?? "")) i++;
			if (text[i] === "}" || text[i] === "]") {
				out += c + text[i++];
				continue;
			}
			depth++;
			out += c + line();
		} else if (c === "}" || c === "]") {
			depth--;
			out += line() + c;
		} else if (c === ",") out += c + line();
		else if (c === ":") out += ": ";
		else if (!/\s/.test(c)) out += c;
	}
	return out;
}

/** Bytes shows what is stored at a raw route: as text, as JSON or in hex, its head only, with the whole to save. */
export function Bytes({ path, name, pick }: { path: string; name: string; pick?: (r: Raw) => Raw }) {
	const url = `${path}${path.includes("?") ? "&" : "?"}max=${head}`;
	const query = useQuery({ queryKey: ["raw", url], queryFn: () => raw(url) });
	if (query.error) return <ReadFailed query={query} what={name} />;
	if (!query.data) return <Loading what={name} />;
	const got = pick ? pick(query.data) : query.data;
	return <BytesView bytes={got.bytes} size={got.size} type={got.type} name={name} path={path} />;
}

/** BytesView shows bytes that are there already. `path` is where the whole can be saved from. */
export function BytesView({
	bytes,
	size: all,
	type,
	name,
	path,
}: {
	bytes: Uint8Array;
	size: number;
	type: string;
	name: string;
	path?: string;
}) {
	const whole = bytes.length >= all;
	const text = useMemo(() => textOf(bytes, whole), [bytes, whole]);
	const json = useMemo(() => (whole && text !== undefined ? indented(text) : undefined), [text, whole]);
	const [chosen, choose] = useState<View>();
	const view = chosen ?? (json !== undefined ? "json" : text !== undefined ? "text" : "hex");
	const shown = view === "hex" ? hex(bytes.subarray(0, 16_384)) : visible((view === "json" ? json : text) ?? "");
	if (all === 0) return <p className="dim">{name}: 0 bytes</p>;
	return (
		<div>
			<div className="bytes-head">
				<Segments
					label={`View of ${name}`}
					items={["json", "text", "hex"]}
					now={view}
					name={(v) => (v === "json" ? "JSON" : v)}
					disabled={(v) => (v === "json" ? json === undefined : v === "text" && text === undefined)}
					onPick={choose}
				/>
				<span className="dim">
					{size(all)}
					{type ? ` · ${type}` : ""}
					{whole ? "" : ` · the first ${size(bytes.length)} are shown`}
					{view === "hex" && bytes.length > 16_384 ? " · 16 KiB in hex" : ""}
				</span>
				<Sha bytes={whole ? bytes : undefined} />
				{text !== undefined ? <Copy text={text}>copy</Copy> : null}
				{path ? (
					<button type="button" className="quiet" onClick={() => save(path, name)}>
						save
					</button>
				) : null}
			</div>
			{/* biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard */}
			<section className="bytes-body" tabIndex={0} aria-label={name}>
				<pre className={view === "hex" ? "hex" : undefined}>{shown}</pre>
			</section>
		</div>
	);
}

function Sha({ bytes }: { bytes: Uint8Array | undefined }) {
	const query = useQuery({
		queryKey: ["sha", bytes],
		enabled: !!bytes && !!crypto.subtle,
		queryFn: async () => {
			const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
			return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
		},
	});
	if (!query.data) return null;
	return (
		<span className="dim mono" title={`sha256 ${query.data}`}>
			sha256 {query.data.slice(0, 8)}…
		</span>
	);
}

/** save writes the whole of a raw route to a file. */
async function save(path: string, name: string): Promise<void> {
	try {
		saveBytes((await raw(path)).bytes, name);
	} catch (e) {
		const { code, message } = asApiError(e);
		toast(`${name} was not saved. ${code}: ${message}`, { bad: true });
	}
}

/** saveBytes writes bytes that are there to a file. */
export function saveBytes(bytes: Uint8Array<ArrayBuffer>, name: string): void {
	const url = URL.createObjectURL(new Blob([bytes]));
	const a = document.createElement("a");
	a.href = url;
	a.download = name.replaceAll(/[^\w.-]+/g, "_").slice(0, 100);
	a.click();
	setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Head shows the first bytes of what is longer, in one line. size is the length of the whole, where it is known. */
export function Head({ bytes, size }: { bytes: Uint8Array | undefined; size?: number | undefined }) {
	if (!bytes) return null;
	const part = bytes.subarray(0, 160);
	const text = textOf(part, size === part.length);
	return (
		<span className="mono dim">
			{text === undefined ? showKey(part, "hex") : visible(text.replaceAll("\n", "␊"))}
			{size !== undefined && size > part.length ? "…" : ""}
		</span>
	);
}
