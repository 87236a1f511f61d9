import { useState } from "react";
import { type ApiError, asApiError } from "../api/errors";
import { scopeWords } from "../session";
import { Button, NotDone } from "./basic";
import { Dialog } from "./dialog";
import { Diff } from "./diff-view";

interface Versioned {
	value: unknown;
	version: string;
}

/** withoutVersion splits settings into what can be changed and the version that they are. */
export function withoutVersion(config: { version?: string | number } | undefined): Versioned {
	const { version, ...value } = config ?? {};
	return { value, version: String(version ?? "0") };
}

/** jsonText lays a value out as it is edited. */
export const jsonText = (value: unknown): string => JSON.stringify(value ?? {}, null, 2);

/**
 * ConfigDialog edits settings as JSON: first the text, then its difference to what is there, then the write, which holds only for the
 * version that was read. Where someone else was faster, it shows theirs beside yours.
 */
export function ConfigDialog({
	title,
	what,
	now,
	needs,
	again,
	save,
	onClose,
}: {
	title: string;
	what: string;
	now: Versioned;
	needs: string;
	/** Reads the settings as they are by now. */
	again: () => Promise<Versioned>;
	save: (value: unknown, version: string) => Promise<unknown>;
	onClose: () => void;
}) {
	const [base, setBase] = useState(now);
	const [text, setText] = useState(() => jsonText(now.value));
	const [review, setReview] = useState(false);
	const [theirs, setTheirs] = useState(false);
	const [busy, setBusy] = useState(false);
	const [fault, setFault] = useState("");
	const [error, setError] = useState<ApiError>();
	const parsed = (): unknown => {
		try {
			setFault("");
			return JSON.parse(text);
		} catch (e) {
			setFault((e as Error).message);
			return undefined;
		}
	};
	const send = async () => {
		const value = parsed();
		if (busy || value === undefined) return;
		setBusy(true);
		setError(undefined);
		try {
			await save(value, base.version);
			onClose();
		} catch (thrown) {
			const e = asApiError(thrown);
			setError(e);
			if (e.overtaken) {
				try {
					setBase(await again());
					setTheirs(true);
				} catch (unread) {
					setError(asApiError(unread));
				}
			}
		}
		setBusy(false);
	};
	return (
		<Dialog title={title} onClose={onClose} wide>
			<p>{what}</p>
			{theirs ? (
				<p className="warn">
					Someone else changed these settings meanwhile: below is what yours would change of version {base.version},
					which is theirs.
				</p>
			) : null}
			{review ? (
				<Diff from={jsonText(base.value)} to={text} label={`Version ${base.version} and yours`} />
			) : (
				<label className="field">
					Settings as JSON, from version {base.version}
					<textarea
						rows={16}
						value={text}
						spellCheck={false}
						onChange={(e) => setText(e.target.value)}
						aria-invalid={fault !== ""}
					/>
				</label>
			)}
			{fault ? (
				<p className="failed" role="alert">
					This is not JSON: {fault}
				</p>
			) : null}
			{error ? <NotDone error={error} /> : null}
			<footer>
				<span className="dim">takes the scope {scopeWords(needs)}</span>
				<button type="button" className="plain" onClick={onClose}>
					Keep
				</button>
				{review ? (
					<>
						<button type="button" className="plain" onClick={() => setReview(false)}>
							Edit
						</button>
						<Button kind="main" needs={needs} disabled={busy} onClick={send}>
							{theirs ? "Save over theirs" : "Save"}
						</Button>
					</>
				) : (
					<Button kind="main" needs={needs} onClick={() => parsed() !== undefined && setReview(true)}>
						Review change
					</Button>
				)}
			</footer>
		</Dialog>
	);
}
