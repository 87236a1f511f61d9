import { useQuery } from "@tanstack/react-query";
import { type RefObject, useEffect, useId, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { api, call } from "../api/client";
import { visible } from "../format";
import { useNamespace } from "../namespace";
import { serverNow } from "../now";
import { useSettings } from "../settings";
import { type Known, type Parsed, parse, suggest, type Task, wordAt } from "./filter";

/** useKnown collects what suggestions of a filter come from: what the server lists, and what the list shows. */
function useKnown(ns: string, tasks: readonly Task[], text: string, caret: number, on: boolean): Known {
	const w = wordAt(text, caret);
	const queues = useQuery({
		queryKey: ["filter queues", ns, w.key === "queue:" ? w.value : ""],
		enabled: on && w.key === "queue:",
		staleTime: 30_000,
		queryFn: () =>
			call(api.GET("/v1/queues", { params: { query: { ns, limit: 20, ...(w.value ? { prefix: w.value } : {}) } } })),
	});
	const workers = useQuery({
		queryKey: ["filter workers", ns],
		enabled: on && w.key === "worker:",
		staleTime: 30_000,
		queryFn: () => call(api.GET("/v1/workers", { params: { query: { ns } } })),
	});
	const errors = useQuery({
		queryKey: ["filter errors", ns],
		enabled: on && w.key === "error:",
		staleTime: 30_000,
		queryFn: () => call(api.GET("/v1/errors", { params: { query: { ns } } })),
	});
	return useMemo(() => {
		const known: Known = {
			queues: [...new Set((queues.data?.queues ?? []).map((q) => q.queue ?? ""))],
			kinds: [...new Set(tasks.map((t) => t.kind ?? ""))],
			workers: [
				...new Set([...(workers.data?.workers ?? []).map((x) => x.id ?? ""), ...tasks.map((t) => t.worker ?? "")]),
			].filter(Boolean),
			labels: new Map(),
			errors: (errors.data?.errors ?? [])
				.filter((e) => e.fingerprint !== "other")
				.map((e) => ({ fingerprint: e.fingerprint ?? "", says: `${e.queue} ${e.code ?? ""} ${e.message ?? ""}` })),
		};
		for (const t of tasks)
			for (const [k, v] of Object.entries((t.labels ?? {}) as Record<string, string>)) {
				if (!known.labels.has(k)) known.labels.set(k, new Set());
				known.labels.get(k)!.add(v);
			}
		return known;
	}, [tasks, queues.data, workers.data, errors.data]);
}

/** FilterBar is where a filter is typed: with suggestions, and with the fault at the word that is wrong. */
export function FilterBar({
	applied,
	tasks,
	onApply,
	field,
}: {
	/** The filter of the address. */
	applied: string;
	tasks: readonly Task[];
	onApply: (text: string, parsed: Parsed) => void;
	field: RefObject<HTMLInputElement | null>;
}) {
	const ns = useNamespace();
	const { times } = useSettings();
	const id = useId();
	const [text, setText] = useState(applied);
	const [caret, setCaret] = useState(0);
	const [open, setOpen] = useState(false);
	const [at, setAt] = useState(-1);
	const mirror = useRef<HTMLDivElement>(null);
	useEffect(() => setText(applied), [applied]);
	const known = useKnown(ns, tasks, text, caret, open);
	const list = open ? suggest(text, caret, known) : [];
	const parsed = useMemo(() => parse(text, serverNow(), times === "utc"), [text, times]);
	// A word that is still typed is not wrong yet.
	const typing = open && text !== applied;
	const fault = parsed.fault && !(typing && caret === parsed.fault.end) ? parsed.fault : undefined;
	const change = (value: string, to: number) => {
		setText(value);
		setCaret(to);
		setAt(-1);
		setOpen(true);
	};
	const pick = (insert: string) => {
		const w = wordAt(text, caret);
		const rest = text.slice(w.end);
		const next = text.slice(0, w.start) + insert + (insert.endsWith(" ") ? rest.replace(/^\s+/, "") : rest);
		const to = w.start + insert.length;
		// At once: what is typed next must not come before the caret has moved.
		flushSync(() => change(next, to));
		field.current?.setSelectionRange(to, to);
	};
	const apply = () => {
		if (parsed.fault) {
			field.current?.setSelectionRange(parsed.fault.start, parsed.fault.end);
			setOpen(false);
			return;
		}
		setOpen(false);
		onApply(text.trim(), parsed);
	};
	const scroll = () => {
		if (mirror.current && field.current) mirror.current.scrollLeft = field.current.scrollLeft;
	};
	return (
		<search className="filter">
			<div className="filter-field">
				<div ref={mirror} className="mirror" aria-hidden="true">
					{fault ? (
						<>
							{text.slice(0, fault.start)}
							<mark>{text.slice(fault.start, fault.end)}</mark>
							{text.slice(fault.end)}
						</>
					) : null}
				</div>
				<input
					ref={field}
					role="combobox"
					aria-expanded={list.length > 0}
					aria-controls={`${id}-list`}
					aria-autocomplete="list"
					aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined}
					aria-label="Filter"
					aria-invalid={!!fault}
					aria-describedby={fault ? `${id}-fault` : undefined}
					placeholder="queue:mail state:dead label.order:7 after:12:00"
					value={text}
					autoComplete="off"
					autoCapitalize="off"
					spellCheck={false}
					onChange={(e) => change(e.target.value, e.target.selectionStart ?? e.target.value.length)}
					onSelect={(e) => setCaret(e.currentTarget.selectionStart ?? 0)}
					onFocus={() => setOpen(true)}
					onClick={() => setOpen(true)}
					onBlur={() => setOpen(false)}
					onScroll={scroll}
					onKeyUp={scroll}
					onKeyDown={(e) => {
						if (e.key === "Enter") {
							if (at >= 0 && list[at]) pick(list[at].insert);
							else apply();
						} else if (e.key === "Tab" && at >= 0 && list[at]) pick(list[at].insert);
						else if (e.key === "ArrowDown" && list.length > 0) setAt((at + 1) % list.length);
						else if (e.key === "ArrowUp" && list.length > 0) setAt(at <= 0 ? list.length - 1 : at - 1);
						else if (e.key === "Escape") {
							if (list.length > 0) setOpen(false);
							else e.currentTarget.blur();
						} else return;
						e.preventDefault();
					}}
				/>
				{text ? (
					<button
						type="button"
						className="quiet"
						aria-label="Clear the filter"
						onClick={() => {
							setText("");
							onApply("", parse("", 0));
							field.current?.focus();
						}}
					>
						×
					</button>
				) : null}
				<div id={`${id}-list`} role="listbox" aria-label="Suggestions" className="found" hidden={list.length === 0}>
					{list.map((s, i) => (
						<div
							key={s.insert}
							id={`${id}-${i}`}
							role="option"
							tabIndex={-1}
							aria-selected={i === at}
							// The field keeps the focus.
							onMouseDown={(e) => {
								e.preventDefault();
								pick(s.insert);
							}}
						>
							<span className="mono">{s.insert}</span> <span className="dim">{s.says}</span>
						</div>
					))}
				</div>
			</div>
			{fault ? (
				<p id={`${id}-fault`} className="lost" role="alert">
					<strong className="mono">{visible(text.slice(fault.start, fault.end))}</strong> {visible(fault.fault ?? "")}
				</p>
			) : null}
		</search>
	);
}
