import { useVirtualizer } from "@tanstack/react-virtual";
import { Fragment, type KeyboardEvent, type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { visible } from "../format";
import { useKeys } from "../keys";
import { type Column, classOf } from "./column";
import { Cells } from "./table";

export type { Column } from "./column";

interface GridProps<T> {
	/** Name of the table, for those who cannot see it. */
	label: string;
	columns: Column<T>[];
	rows: readonly T[];
	id: (row: T) => string;
	onOpen?: (row: T) => void;
	/** Address of a row, for a new tab. */
	href?: (row: T) => string;
	/** Ids that are marked; with it, rows can be marked. */
	marked?: ReadonlySet<string>;
	onMark?: (ids: Set<string>) => void;
	sort?: string | undefined;
	onSort?: (sort: string) => void;
	/** What a row shows below itself when it is expanded. */
	detail?: (row: T) => ReactNode;
	/** Rows that left the filter since they were read. */
	stale?: (row: T) => boolean;
	/** Keys of a row, such as r for retry. */
	keys?: Record<string, (row: T) => void>;
	empty?: ReactNode;
	/** Called when the end of the rows is near. */
	onEnd?: () => void;
	/** Told which rows are in the document, by their first and last number. */
	onRange?: (first: number, last: number) => void;
}

const rowHeights = { dense: 24, normal: 28, wide: 36 };

/**
 * Grid is a table of many rows, of which at most about 60 are in the document. Arrow keys or j and k move, Enter opens, or expands a row
 * that has no page of its own, o opens a new tab, x marks, shift and x marks a range, e expands. Rows do not move while they are shown: only other `rows` move them.
 */
export function Grid<T>(props: GridProps<T>) {
	const { rows, columns, id, marked, onMark } = props;
	const box = useRef<HTMLDivElement>(null);
	const body = useRef<HTMLTableSectionElement>(null);
	const [at, setAt] = useState(0);
	// What keys go by, as they may come faster than the page is drawn: focusing is the row that is to have the focus soon.
	const keyed = useRef<{ at: number; focusing?: number; marked: typeof marked }>({ at, marked });
	keyed.current.at = at;
	keyed.current.marked = marked;
	const [open, setOpen] = useState<string>();
	const markedFrom = useRef<number>(undefined);
	const height = rowHeights[(document.documentElement.dataset["density"] as keyof typeof rowHeights) ?? "normal"];
	const virtual = useVirtualizer({
		count: rows.length,
		getScrollElement: () => box.current,
		estimateSize: () => height,
		overscan: 8,
		getItemKey: useCallback((i: number) => (rows[i] ? id(rows[i]) : i), [rows, id]),
	});
	const shown = virtual.getVirtualItems();
	const last = shown.at(-1)?.index ?? 0;
	const { onEnd } = props;
	useEffect(() => {
		if (onEnd && rows.length > 0 && last >= rows.length - 20) onEnd();
	}, [onEnd, last, rows.length]);
	const { onRange } = props;
	const begin = shown[0]?.index ?? 0;
	useEffect(() => onRange?.(begin, last), [onRange, begin, last]);

	const focus = (i: number) => {
		const to = Math.max(0, Math.min(rows.length - 1, i));
		setAt(to);
		keyed.current.at = to;
		keyed.current.focusing = to;
		virtual.scrollToIndex(to);
		requestAnimationFrame(() => {
			if (keyed.current.focusing !== to) return;
			delete keyed.current.focusing;
			body.current?.querySelector<HTMLElement>(`[data-index="${to}"]`)?.focus();
		});
	};
	const mark = (i: number, range: boolean) => {
		const row = rows[i];
		if (!row || !keyed.current.marked || !onMark) return;
		const next = new Set(keyed.current.marked);
		if (range && markedFrom.current !== undefined) {
			const [a, b] = [Math.min(i, markedFrom.current), Math.max(i, markedFrom.current)];
			for (const r of rows.slice(a, b + 1)) next.add(id(r));
		} else if (next.has(id(row))) next.delete(id(row));
		else next.add(id(row));
		markedFrom.current = i;
		keyed.current.marked = next;
		onMark(next);
	};
	const expand = (row: T) => setOpen((o) => (o === id(row) ? undefined : id(row)));
	const act = (key: string, i: number, shift: boolean): boolean => {
		const row = rows[i];
		if (!row) return false;
		if (key === "Enter" && props.onOpen) props.onOpen(row);
		else if (key === "Enter" && props.detail) expand(row);
		else if (key === "o" && props.href) window.open(props.href(row), "_blank", "noopener");
		else if (key.toLowerCase() === "x" && onMark) mark(i, shift);
		else if (key === "e" && props.detail) expand(row);
		else if (props.keys?.[key]) props.keys[key](row);
		else return false;
		return true;
	};
	const onKeyDown = (e: KeyboardEvent) => {
		if (
			(e.target as HTMLElement).closest("input,select,textarea,button,a") &&
			e.key !== "ArrowDown" &&
			e.key !== "ArrowUp"
		)
			return;
		const from = keyed.current.at;
		const to = {
			ArrowDown: from + 1,
			ArrowUp: from - 1,
			Home: 0,
			End: rows.length - 1,
			PageDown: from + 20,
			PageUp: from - 20,
		}[e.key];
		if (to !== undefined) {
			e.preventDefault();
			focus(to);
		} else if (e.key === "Enter" && act("Enter", from, false)) e.preventDefault();
	};
	// Letters work wherever the focus is on the page, as the list is what the page is about.
	const letters: Record<string, (e: globalThis.KeyboardEvent) => void> = {
		j: () => {
			const inRows = keyed.current.focusing !== undefined || body.current?.contains(document.activeElement);
			focus(inRows ? keyed.current.at + 1 : keyed.current.at);
		},
		k: () => focus(keyed.current.at - 1),
		Enter: () => act("Enter", keyed.current.at, false), // right after j, before the row has the focus
	};
	for (const key of ["o", "x", "X", "e", ...Object.keys(props.keys ?? {})])
		letters[key] = (e) => act(key, keyed.current.at, e.shiftKey);
	useKeys(letters);

	const before = shown[0]?.start ?? 0;
	const after = virtual.getTotalSize() - (shown.at(-1)?.end ?? 0);
	const width = columns.length + (onMark ? 1 : 0);
	const allMarked = useMemo(
		() => rows.length > 0 && !!marked && rows.every((r) => marked.has(id(r))),
		[rows, marked, id],
	);
	if (rows.length === 0) return <>{props.empty ?? null}</>;
	return (
		<div className="grid-box" ref={box}>
			<table className="grid" aria-label={visible(props.label)} aria-rowcount={rows.length + 1} onKeyDown={onKeyDown}>
				<thead>
					<tr>
						{onMark ? (
							<th scope="col" className="mark">
								<input
									type="checkbox"
									aria-label="Mark all rows that are loaded"
									checked={allMarked}
									onChange={() => onMark(allMarked ? new Set() : new Set(rows.map(id)))}
								/>
							</th>
						) : null}
						{columns.map((c) => (
							<th
								key={c.id}
								scope="col"
								className={classOf(c)}
								aria-sort={c.sort && c.sort === props.sort ? (c.num ? "descending" : "ascending") : undefined}
							>
								{c.sort && props.onSort ? (
									<button type="button" className="sort" onClick={() => props.onSort!(c.sort!)}>
										{c.name}
										{c.sort === props.sort ? <span aria-hidden="true"> {c.num ? "▾" : "▴"}</span> : null}
									</button>
								) : (
									c.name
								)}
							</th>
						))}
					</tr>
				</thead>
				<tbody ref={body}>
					{before > 0 ? (
						<tr className="room">
							<td colSpan={width} style={{ height: before, padding: 0 }} />
						</tr>
					) : null}
					{shown.map((v) => {
						const row = rows[v.index];
						if (!row) return null;
						const key = id(row);
						const isOpen = open === key && props.detail;
						return (
							<Fragment key={key}>
								<tr
									data-index={v.index}
									aria-rowindex={v.index + 2}
									aria-selected={marked ? marked.has(key) : undefined}
									tabIndex={v.index === at ? 0 : -1}
									className={
										[props.onOpen || props.detail ? "open" : "", props.stale?.(row) ? "stale" : ""].join(" ").trim() ||
										undefined
									}
									onFocus={() => setAt(v.index)}
									onClick={(e) => {
										if ((e.target as HTMLElement).closest("input,button,a,select")) return;
										if (getSelection()?.toString()) return; // a text was marked
										if (e.metaKey || e.ctrlKey) act("o", v.index, false);
										else act("Enter", v.index, false);
									}}
								>
									{onMark ? (
										<td className="mark">
											<input
												type="checkbox"
												tabIndex={-1}
												aria-label={`Mark ${visible(key)}`}
												checked={marked!.has(key)}
												onClick={(e) => mark(v.index, e.shiftKey)}
												onChange={() => {}}
											/>
										</td>
									) : null}
									<Cells columns={columns} row={row} index={v.index} />
								</tr>
								{isOpen ? (
									<tr className="detail">
										<td colSpan={width}>{props.detail!(row)}</td>
									</tr>
								) : null}
							</Fragment>
						);
					})}
					{after > 0 ? (
						<tr className="room">
							<td colSpan={width} style={{ height: after, padding: 0 }} />
						</tr>
					) : null}
				</tbody>
			</table>
		</div>
	);
}
