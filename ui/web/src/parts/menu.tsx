import { type KeyboardEvent, type ReactNode, useId, useRef } from "react";
import { visible } from "../format";
import { scopeWords, useMay } from "../session";

export interface MenuItem {
	name: string;
	onPick: () => void;
	needs?: string | undefined;
	danger?: boolean;
	disabled?: boolean | undefined;
}

/** Menu is a button that opens a list of actions, as a native popover. */
export function Menu({
	label,
	title,
	items,
	kind = "plain",
	onNear,
}: {
	label: ReactNode;
	title?: string;
	items: MenuItem[];
	kind?: string;
	/** Called when the menu may be opened next: what its items need can be read then. */
	onNear?: () => void;
}) {
	const id = useId();
	const list = useRef<HTMLDivElement>(null);
	const button = useRef<HTMLButtonElement>(null);
	const may = useMay();
	const rows = () => [...list.current!.querySelectorAll<HTMLButtonElement>("[role=menuitem]:not([disabled])")];
	const move = (e: KeyboardEvent) => {
		const all = rows();
		const at = all.indexOf(document.activeElement as HTMLButtonElement);
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
		if (to === undefined) return;
		e.preventDefault();
		all[(to + all.length) % all.length]?.focus();
	};
	return (
		<>
			<button
				ref={button}
				type="button"
				className={kind}
				popoverTarget={id}
				aria-haspopup="menu"
				title={title}
				aria-label={title}
				onPointerEnter={onNear}
				onFocus={onNear}
			>
				{label}
			</button>
			<div
				ref={list}
				id={id}
				popover="auto"
				role="menu"
				tabIndex={-1}
				className="menu"
				onKeyDown={move}
				onToggle={(e) => {
					if (e.newState !== "open") return;
					const b = button.current!.getBoundingClientRect();
					const m = list.current!;
					m.style.top = `${Math.min(b.bottom + 4, innerHeight - m.offsetHeight - 4)}px`;
					m.style.left = `${Math.max(4, Math.min(b.left, innerWidth - m.offsetWidth - 4))}px`;
					rows()[0]?.focus();
				}}
			>
				{items.map((i) => (
					<button
						key={i.name}
						type="button"
						role="menuitem"
						className={i.danger ? "danger" : ""}
						disabled={i.disabled || !may(i.needs)}
						title={may(i.needs) ? undefined : `needs the scope ${scopeWords(i.needs ?? "")}`}
						onClick={() => {
							list.current?.hidePopover();
							i.onPick();
						}}
					>
						{visible(i.name)}
					</button>
				))}
			</div>
		</>
	);
}
