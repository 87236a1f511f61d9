import { type ReactNode, useSyncExternalStore } from "react";
import { shown } from "./basic";

interface Toast {
	id: number;
	text: ReactNode;
	bad: boolean;
	action?: { name: string; run: () => void } | undefined;
}

let toasts: Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(list: Toast[]): void {
	toasts = list;
	for (const f of listeners) f();
}

function drop(id: number): void {
	set(toasts.filter((t) => t.id !== id));
}

/** toast tells the outcome of an action. One that went wrong stays until it is closed. */
export function toast(text: ReactNode, o: { bad?: boolean; action?: { name: string; run: () => void } } = {}): void {
	const t: Toast = { id: next++, text, bad: o.bad ?? false, action: o.action };
	set([...toasts.slice(-3), t]);
	if (!t.bad) setTimeout(() => drop(t.id), 6000);
}

/** Toasts is where outcomes are shown, and spoken politely. */
export function Toasts() {
	const list = useSyncExternalStore(
		(f) => {
			listeners.add(f);
			return () => listeners.delete(f);
		},
		() => toasts,
	);
	return (
		<div className="toasts" role="status" aria-live="polite">
			{list.map((t) => (
				<div key={t.id} className={t.bad ? "toast bad" : "toast"}>
					<div>{shown(t.text)}</div>
					{t.action ? (
						<button
							type="button"
							className="quiet"
							onClick={() => {
								drop(t.id);
								t.action!.run();
							}}
						>
							{t.action.name}
						</button>
					) : null}
					<button type="button" className="quiet" aria-label="Close" onClick={() => drop(t.id)}>
						×
					</button>
				</div>
			))}
		</div>
	);
}
