import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { newRequestId } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { curl } from "../curl";
import { size } from "../format";
import { inAddress, type KeyView, readKey, showKey, toBase64 } from "../key-text";
import { deleteKey, imageType, putValue, readValue, stamp, type Value } from "../kv";
import { Button, Copy, Loading, NotDone, Panel, ReadFailed, Segments } from "../parts/basic";
import { BytesView, saveBytes, textOf } from "../parts/bytes";
import { Confirm, Dialog } from "../parts/dialog";
import { Diff } from "../parts/diff-view";
import { KeyWriter } from "../parts/key-writer";
import { toast } from "../parts/toast";

/** Beyond this a key stands in no address: a body carries it. */
const addressBytes = 4096;

/** addressable tells whether a key can stand in a path: browsers take "." and ".." for steps. */
function addressable(key: Uint8Array): boolean {
	const text = showKey(key);
	return text !== "." && text !== ".." && inAddress(key).length <= addressBytes;
}

/** KeyPanel shows one key as its leader has it. */
export function KeyPanel({
	ns,
	keyspace,
	bytes,
	view,
	writers,
	onClose,
}: {
	ns: string;
	keyspace: string;
	bytes: Uint8Array;
	view: KeyView;
	/** Whether the keyspace keeps who writes its keys. */
	writers: boolean;
	onClose: () => void;
}) {
	const name = showKey(bytes, view);
	const short = name.length > 80 ? `${name.slice(0, 77)}…` : name;
	const queries = useQueryClient();
	const query = useQuery({
		queryKey: ["kv", ns, keyspace, toBase64(bytes)],
		queryFn: async () => (await readValue(ns, keyspace, bytes)) ?? null,
	});
	const [edit, setEdit] = useState(false);
	const [remove, setRemove] = useState(false);
	const value = query.data;
	const command = addressable(bytes)
		? curl("GET", `/v1/kv/${encodeURIComponent(keyspace)}/keys/${inAddress(bytes)}?ns=${encodeURIComponent(ns)}`)
		: curl("POST", `/v1/kv/${encodeURIComponent(keyspace)}/get?ns=${encodeURIComponent(ns)}`, {
				keys_base64: [toBase64(bytes)],
			});
	return (
		<Panel
			title={
				<span className="mono wrap" title={name.length < 2000 ? name : undefined}>
					{short}
				</span>
			}
			side={
				<button type="button" className="quiet" onClick={onClose} aria-label="Close this key">
					×
				</button>
			}
		>
			<ReadFailed query={query} what="The key" />
			{query.isPending ? <Loading what="the key" /> : null}
			{value === null ? <p className="dim">This key is not there (any more).</p> : null}
			{value ? (
				<>
					<p className="dim">
						rev {value.rev} · {size(value.bytes.length)} · key of {size(bytes.length)} · as of{" "}
						<span className="mono">{stamp(value.at)}</span>, linearizable
					</p>
					<KeyWriter ns={ns} value={value} kept={writers} />
					<div className="actions">
						<Button needs="kv:write" onClick={() => setEdit(true)}>
							Edit…
						</Button>
						<Button needs="kv:write" kind="danger" onClick={() => setRemove(true)}>
							Delete…
						</Button>
						<button type="button" className="quiet" onClick={() => query.refetch()}>
							Read again
						</button>
						<button type="button" className="quiet" onClick={() => saveBytes(value.bytes, name)}>
							Save
						</button>
						<Copy text={name}>copy the key</Copy>
						<Copy text={command}>copy as curl</Copy>
					</div>
					<Picture bytes={value.bytes} name={short} />
					<BytesView key={value.rev} bytes={value.bytes} size={value.bytes.length} type="" name={`Value of ${short}`} />
				</>
			) : null}
			{edit && value ? (
				<KeyDialog ns={ns} keyspace={keyspace} was={{ key: bytes, value }} onClose={() => setEdit(false)} />
			) : null}
			{remove && value ? (
				<DeleteKey
					ns={ns}
					keyspace={keyspace}
					bytes={bytes}
					name={short}
					value={value}
					onClose={() => {
						setRemove(false);
						queries.invalidateQueries({ queryKey: ["kv", ns, keyspace] });
						queries.invalidateQueries({ queryKey: ["keys", ns, keyspace] });
					}}
				/>
			) : null}
		</Panel>
	);
}

/** Picture shows an image by a blob: address, in which nothing can run. */
function Picture({ bytes, name }: { bytes: Uint8Array<ArrayBuffer>; name: string }) {
	const type = imageType(bytes);
	const [url, setUrl] = useState("");
	useEffect(() => {
		if (!type) return undefined;
		const made = URL.createObjectURL(new Blob([bytes], { type }));
		setUrl(made);
		return () => URL.revokeObjectURL(made);
	}, [bytes, type]);
	if (!type || !url) return null;
	return (
		<figure className="picture">
			<img src={url} alt={`Value of ${name}`} />
			<figcaption className="dim">{type}</figcaption>
		</figure>
	);
}

function DeleteKey({
	ns,
	keyspace,
	bytes,
	name,
	value,
	onClose,
}: {
	ns: string;
	keyspace: string;
	bytes: Uint8Array;
	name: string;
	value: Value;
	onClose: () => void;
}) {
	const id = useRef(newRequestId());
	return (
		<Confirm
			title={`Delete ${name}?`}
			what={
				<p>
					The key and its {size(value.bytes.length)} are removed from {keyspace}, if it is still at revision {value.rev}
					.
				</p>
			}
			lost="The value cannot be brought back."
			needs="kv:write"
			verb="Delete"
			onClose={onClose}
			onConfirm={async () => {
				await deleteKey(ns, keyspace, bytes, value.rev, id.current);
				toast(`Deleted ${name}`);
			}}
		/>
	);
}

const encode = (text: string) => new TextEncoder().encode(text);

/** KeyDialog puts a new key, or edits one at the revision that was read. On a refusal it shows what someone else has put meanwhile. */
export function KeyDialog({
	ns,
	keyspace,
	was,
	first,
	onClose,
	onDone,
}: {
	ns: string;
	keyspace: string | undefined;
	was?: { key: Uint8Array; value: Value };
	/** What a new key begins with. */
	first?: string;
	onClose: () => void;
	onDone?: (keyspace: string, key: string) => void;
}) {
	const queries = useQueryClient();
	const readable = useMemo(() => (was ? textOf(was.value.bytes, true) : ""), [was]);
	const [space, setSpace] = useState(keyspace ?? "");
	const [keyText, setKeyText] = useState(first ?? "");
	const [keyView, setKeyView] = useState<KeyView>("text");
	const [hex, setHex] = useState(readable === undefined);
	const [text, setText] = useState(() => readable ?? (was ? showKey(was.value.bytes, "hex") : ""));
	const [over, setOver] = useState(false);
	const [theirs, setTheirs] = useState<Value>();
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const sent = useRef({ what: "", id: "" });
	const key = was ? was.key : readKey(keyText, keyView);
	const value = hex ? readKey(text, "hex") : encode(text);
	const rev = theirs?.rev ?? was?.value.rev;
	const ready = space !== "" && key !== undefined && key.length > 0 && value !== undefined && !busy;
	const send = async () => {
		if (!ready) return;
		const expect = rev ?? (over ? undefined : "0");
		// The same content asks again under the same id; other content is another write.
		const what = [space, toBase64(key), toBase64(value), expect].join(" ");
		if (sent.current.what !== what) sent.current = { what, id: newRequestId() };
		setBusy(true);
		setError(undefined);
		try {
			await putValue(ns, space, key, value, expect, sent.current.id);
			toast(`Stored ${showKey(key).slice(0, 80)}`);
			queries.invalidateQueries({ queryKey: ["kv", ns] });
			queries.invalidateQueries({ queryKey: ["keys", ns] });
			queries.invalidateQueries({ queryKey: ["keyspaces", ns] });
			onClose();
			onDone?.(space, showKey(key));
			return;
		} catch (thrown) {
			const e = asApiError(thrown);
			setError(e);
			if (e.overtaken) setTheirs(await readValue(ns, space, key).catch(() => undefined));
		}
		setBusy(false);
	};
	const theirText = theirs ? textOf(theirs.bytes, true) : undefined;
	return (
		<Dialog title={was ? `Edit ${showKey(was.key).slice(0, 80)}` : "Put a key"} onClose={onClose} wide>
			<form
				onSubmit={(e) => {
					e.preventDefault();
					send();
				}}
			>
				{was ? (
					<p>It is stored only if the key is still at revision {rev}.</p>
				) : (
					<>
						{keyspace === undefined ? (
							<label className="field">
								Keyspace
								<input
									value={space}
									onChange={(e) => setSpace(e.target.value.trim())}
									spellCheck={false}
									autoComplete="off"
								/>
							</label>
						) : null}
						<div className="field-row">
							<label className="field grow">
								Key
								<input
									className="mono"
									value={keyText}
									onChange={(e) => setKeyText(e.target.value)}
									spellCheck={false}
									autoComplete="off"
									aria-invalid={key === undefined}
								/>
							</label>
							<ViewSwitch
								view={keyView}
								what="the key"
								onChange={(v) => {
									if (key) setKeyText(showKey(key, v));
									setKeyView(v);
								}}
							/>
						</div>
						<label className="check">
							<input type="checkbox" checked={over} onChange={(e) => setOver(e.target.checked)} />
							replace a value that is there already, whatever it is
						</label>
					</>
				)}
				<label className="field">
					Value{hex ? ", in hex" : ""}
					<textarea
						rows={10}
						value={text}
						onChange={(e) => setText(e.target.value)}
						spellCheck={false}
						aria-invalid={value === undefined}
					/>
				</label>
				<ViewSwitch
					view={hex ? "hex" : "text"}
					what="the value"
					onChange={(v) => {
						if (value === undefined || (v === "hex") === hex) return;
						const shown = v === "hex" ? showKey(value, "hex") : textOf(value, true);
						if (shown === undefined) return;
						setText(shown);
						setHex(v === "hex");
					}}
				/>{" "}
				<span className="dim">{value === undefined ? "must be pairs of hexadecimal digits" : size(value.length)}</span>
				{error ? <NotDone error={error} /> : null}
				{theirs ? (
					<>
						<p className="warn">
							Someone else has put revision {theirs.rev} meanwhile. Theirs, and what yours would change:
						</p>
						{theirText !== undefined && !hex ? (
							<Diff from={theirText} to={text} label="Theirs and yours" />
						) : (
							<p className="dim">Theirs has {size(theirs.bytes.length)}, which are not text.</p>
						)}
						<button
							type="button"
							className="plain"
							onClick={() => {
								const asText = textOf(theirs.bytes, true);
								setHex(asText === undefined);
								setText(asText ?? showKey(theirs.bytes, "hex"));
							}}
						>
							Take theirs
						</button>
					</>
				) : null}
				<footer>
					<span className="dim">takes the scope kv:write</span>
					<button type="button" className="plain" onClick={onClose}>
						Keep
					</button>
					<Button kind={theirs ? "danger" : "main"} needs="kv:write" disabled={!ready} onClick={send}>
						{theirs ? "Store over theirs" : error?.outcome === "unknown" ? "Ask again" : "Store"}
					</Button>
				</footer>
			</form>
		</Dialog>
	);
}

/** ViewSwitch chooses between text and hex. */
export function ViewSwitch({ view, what, onChange }: { view: KeyView; what: string; onChange: (v: KeyView) => void }) {
	return <Segments label={`How ${what} is written`} items={["text", "hex"]} now={view} onPick={onChange} />;
}
