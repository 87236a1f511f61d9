import { type ReactNode, useId, useLayoutEffect, useRef, useState } from "react";
import { type ApiError, asApiError } from "../api/errors";
import { visible } from "../format";
import { scopeWords } from "../session";
import { Button, NotDone } from "./basic";
import { EnvLabel } from "./label";

/** Dialog is a native dialog: it traps the focus and gives it back. */
export function Dialog({
	title,
	onClose,
	children,
	wide,
}: {
	title: string;
	onClose: () => void;
	children: ReactNode;
	wide?: boolean;
}) {
	const ref = useRef<HTMLDialogElement>(null);
	const id = useId();
	// Before the browser paints and while the dialog is still in the document: closed later, it does not give the focus back.
	useLayoutEffect(() => {
		const d = ref.current!;
		d.showModal();
		d.querySelector<HTMLElement>("[data-first]")?.focus();
		return () => d.close();
	}, []);
	return (
		<dialog
			ref={ref}
			aria-labelledby={id}
			className={wide ? "wide" : ""}
			onCancel={(e) => {
				if (e.target !== e.currentTarget) return; // of a dialog over this one
				e.preventDefault();
				onClose();
			}}
		>
			<header>
				<h2 id={id}>{visible(title)}</h2>
				<EnvLabel />
			</header>
			{children}
		</dialog>
	);
}

interface ConfirmProps {
	title: string;
	/** What will happen. */
	what: ReactNode;
	/** What cannot be undone. */
	lost?: ReactNode;
	/** Scopes that it takes, of which one is needed. */
	needs: string;
	/** Word of the button that does it, such as "Force release". */
	verb: string;
	/** Where given, this text must be typed first: a count or a name. */
	type?: string | undefined;
	/** Asks for a reason. */
	reason?: boolean;
	/** Further fields. */
	children?: ReactNode;
	/** What keeps the button disabled. */
	blocked?: boolean;
	wide?: boolean;
	onClose: () => void;
	/** Does it. The dialog closes when it is done, and shows an error of it. */
	onConfirm: (reason: string) => Promise<unknown>;
}

/** Confirm says what will happen, what cannot be undone and which scope it takes, before it is done. The default button is Keep. */
export function Confirm(props: ConfirmProps) {
	const [reason, setReason] = useState("");
	const [typed, setTyped] = useState("");
	const [busy, setBusy] = useState(false);
	const [error, setError] = useState<ApiError>();
	const typeId = useId();
	const ready =
		!props.blocked && (props.type === undefined || typed.trim().replaceAll(",", "") === props.type.replaceAll(",", ""));
	const confirm = async () => {
		if (busy || !ready) return; // a double click sends one request
		setBusy(true);
		setError(undefined);
		try {
			await props.onConfirm(reason.trim());
			props.onClose();
		} catch (e) {
			setError(asApiError(e));
			setBusy(false);
		}
	};
	return (
		<Dialog title={props.title} onClose={props.onClose} wide={props.wide ?? false}>
			<form
				onSubmit={(e) => {
					e.preventDefault();
					confirm();
				}}
			>
				<div>{props.what}</div>
				{props.lost ? <p className="lost">{props.lost}</p> : null}
				{props.children}
				{props.reason ? (
					<label className="field">
						Reason, for those who ask later
						<input value={reason} onChange={(e) => setReason(e.target.value)} maxLength={256} autoComplete="off" />
					</label>
				) : null}
				{props.type === undefined ? null : (
					<label className="field" htmlFor={typeId}>
						<span>
							Type <strong className="mono">{props.type}</strong> to go on
						</span>
						<input
							id={typeId}
							value={typed}
							onChange={(e) => setTyped(e.target.value)}
							autoComplete="off"
							spellCheck={false}
						/>
					</label>
				)}
				{error ? <NotDone error={error} /> : null}
				<footer>
					<span className="dim">takes the scope {scopeWords(props.needs)}</span>
					<Button
						kind="main"
						onClick={props.onClose}
						data-first={props.type === undefined && !props.reason ? "" : undefined}
					>
						Keep
					</Button>
					<Button kind="danger" needs={props.needs} disabled={!ready || busy} onClick={confirm}>
						{busy ? "…" : error?.outcome === "unknown" ? "Ask again" : props.verb}
					</Button>
				</footer>
			</form>
		</Dialog>
	);
}
