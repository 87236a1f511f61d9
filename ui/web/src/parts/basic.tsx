import { Link, type LinkProps } from "@tanstack/react-router";
import { type ButtonHTMLAttributes, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { type ApiError, asApiError, sentence } from "../api/errors";
import { ago, clock, count, parseTime, span, tail, visible } from "../format";
import { useNow } from "../now";
import { scopeWords, useMay } from "../session";
import { useSettings } from "../settings";
import { Icon } from "./icon";

/** Page is a screen: its name, what can be done there, and its parts. */
export function Page({
	title,
	name,
	actions,
	children,
}: {
	title: ReactNode;
	name: string;
	actions?: ReactNode;
	children: ReactNode;
}) {
	useEffect(() => {
		document.title = `${visible(name)} · Millrace`;
	}, [name]);
	return (
		<>
			<header className="page-head">
				<h1>{shown(title)}</h1>
				{actions ? <div className="actions">{actions}</div> : null}
			</header>
			{children}
		</>
	);
}

/** Panel is a part of a page with a heading. */
export function Panel({ title, side, children }: { title: ReactNode; side?: ReactNode; children: ReactNode }) {
	const id = useId();
	return (
		<section className="panel" aria-labelledby={id}>
			<div className="panel-head">
				<h2 id={id}>{shown(title)}</h2>
				{side ? <div className="panel-side">{side}</div> : null}
			</div>
			{children}
		</section>
	);
}

/** Tabs are the views of one thing. Each is a link: its address can be sent to a colleague. */
export function Tabs({
	label,
	items,
}: {
	label: string;
	items: { name: string; link: LinkProps; count?: number | undefined }[];
}) {
	return (
		<nav className="tabs" aria-label={label}>
			{items.map((i) => (
				<Link
					key={i.name}
					{...i.link}
					activeOptions={{ exact: true, includeSearch: false }}
					activeProps={{ "aria-current": "page" }}
				>
					{i.name}
					{i.count === undefined ? null : <span className="dim"> {count(i.count)}</span>}
				</Link>
			))}
		</nav>
	);
}

const states: Record<string, { glyph?: string; icon?: string; word: string; hue: string }> = {
	ready: { glyph: "●", word: "ready", hue: "ready" },
	running: { glyph: "▶", word: "running", hue: "running" },
	scheduled: { glyph: "◷", word: "scheduled", hue: "scheduled" },
	blocked: { icon: "hourglass", word: "blocked", hue: "blocked" },
	completed: { glyph: "✓", word: "completed", hue: "completed" },
	dead: { glyph: "✕", word: "dead", hue: "dead" },
	cancelled: { glyph: "⊘", word: "cancelled", hue: "cancelled" },
	paused: { icon: "pause", word: "paused", hue: "blocked" },
	crashed: { glyph: "╳", word: "crashed", hue: "dead" },
	failed: { glyph: "✕", word: "failed", hue: "dead" },
	released: { glyph: "↩", word: "released", hue: "cancelled" },
	snoozed: { glyph: "◷", word: "snoozed", hue: "scheduled" },
};

/** State shows a state by a glyph, a word and a hue, so that colour alone never tells. */
export function State({ state, children }: { state: string | undefined; children?: ReactNode }) {
	const s = states[state ?? ""] ?? { glyph: "?", word: state ?? "unknown", hue: "cancelled" };
	return (
		<span className={`state hue-${s.hue}`}>
			{s.icon ? <Icon name={s.icon} /> : <span aria-hidden="true">{s.glyph}</span>} {children ?? s.word}
		</span>
	);
}

/** When shows a time: how far it is from now, and in full on hover. */
export function When({ at, full }: { at: string | undefined; full?: boolean }) {
	const now = useNow();
	const { times } = useSettings();
	const t = parseTime(at);
	if (t === undefined) return <span className="dim">–</span>;
	return (
		<time dateTime={at} title={full ? ago(t, now) : clock(t, times)}>
			{full ? clock(t, times) : ago(t, now)}
		</time>
	);
}

/** Since shows how long something has lasted. */
export function Since({ at }: { at: string | undefined }) {
	const now = useNow();
	const { times } = useSettings();
	const t = parseTime(at);
	if (t === undefined) return <span className="dim">–</span>;
	return (
		<time dateTime={at} title={clock(t, times)}>
			{span(Math.max(0, now - t))}
		</time>
	);
}

/** Id shows the end of an id; the whole id is its title, and what is copied. */
export function Id({ id, n = 6 }: { id: string | undefined; n?: number }) {
	if (!id) return <span className="dim">–</span>;
	return (
		<span className="mono" title={visible(id)}>
			{visible(tail(id, n))}
		</span>
	);
}

/** Copy puts a text on the clipboard. */
export function Copy({
	text,
	children,
	label,
}: {
	text: string | (() => string);
	children?: ReactNode;
	label?: string;
}) {
	const [done, setDone] = useState(false);
	const copy = async () => {
		const value = typeof text === "string" ? text : text();
		await copyText(value);
		setDone(true);
		setTimeout(() => setDone(false), 1500);
	};
	return (
		<button
			type="button"
			className="quiet copy"
			onClick={copy}
			aria-label={label ?? (children ? undefined : "Copy")}
			title={label ?? "Copy"}
		>
			{done ? "copied" : (children ?? <Icon name="copy" />)}
		</button>
	);
}

/** copyText writes to the clipboard, also where the page is plain http and the browser gives no clipboard to it. */
export async function copyText(value: string): Promise<void> {
	if (navigator.clipboard) return navigator.clipboard.writeText(value);
	const area = document.createElement("textarea");
	area.value = value;
	document.body.append(area);
	area.select();
	document.execCommand("copy");
	area.remove();
}

/** Command is a command line, with a button that copies it. */
export function Command({ text }: { text: string }) {
	return (
		<span className="command">
			<code>{visible(text)}</code> <Copy text={text} label="Copy the command" />
		</span>
	);
}

type ButtonProps = Omit<ButtonHTMLAttributes<HTMLButtonElement>, "type"> & {
	/** Scopes of which one is needed: "task:operate|admin". Without it the button is disabled and names them. */
	needs?: string | undefined;
	kind?: "plain" | "main" | "danger" | "quiet" | undefined;
	/** Shortcut, such as "r", for the title. */
	letter?: string | undefined;
};

/** Button is a button. Where the session lacks its scope it stays to be seen, disabled, and says what is missing. */
export function Button({ needs, kind = "plain", letter, disabled, title, children, ...rest }: ButtonProps) {
	const may = useMay()(needs);
	const text = may
		? [title, letter ? `key ${letter}` : ""].filter(Boolean).join(", ")
		: `needs the scope ${scopeWords(needs ?? "")}`;
	return (
		<button type="button" className={kind} disabled={disabled || !may} title={text || undefined} {...rest}>
			{children}
		</button>
	);
}

/** Spark draws a short series as a line. `summary` says it in words. Where fewer than `slots` values are known, they are the last ones. */
export function Spark({
	values,
	summary,
	slots,
}: {
	values: readonly number[] | undefined;
	summary: string;
	slots?: number;
}) {
	if (!values || values.length < 2) return <span className="spark dim">–</span>;
	const most = Math.max(1, ...values);
	const w = 72;
	const h = 18;
	const last = Math.max(values.length, slots ?? 0) - 1;
	const first = last + 1 - values.length;
	const points = values.map(
		(v, i) => `${(((first + i) * w) / last).toFixed(1)},${(h - 1 - (v / most) * (h - 2)).toFixed(1)}`,
	);
	return (
		<svg className="spark" viewBox={`0 0 ${w} ${h}`} width={w} height={h} role="img" aria-label={summary}>
			<title>{summary}</title>
			<polyline points={points.join(" ")} fill="none" />
		</svg>
	);
}

/** Meter shows how much of something is used. */
export function Meter({
	used,
	all,
	label,
	children,
	calm,
}: {
	used: number;
	all: number | undefined;
	label: string;
	/** In place of the two numbers. */
	children?: ReactNode;
	/** Full is how it should be. */
	calm?: boolean;
}) {
	if (!all) return <span className="num">{count(used)}</span>;
	const part = Math.min(1, used / all);
	return (
		<span className="meter" title={label}>
			<span className="num">{children ?? `${count(used)} / ${count(all)}`}</span>
			<svg
				viewBox="0 0 40 8"
				width="40"
				height="8"
				aria-hidden="true"
				className={calm ? "" : part >= 1 ? "full" : part > 0.9 ? "near" : ""}
			>
				<rect className="all" width="40" height="8" rx="2" />
				<rect className="used" width={40 * part} height="8" rx="2" />
			</svg>
		</span>
	);
}

/** Segments is a choice of one of a few. */
export function Segments<T extends string>({
	label,
	items,
	now,
	name,
	disabled,
	onPick,
}: {
	label: string;
	items: readonly T[];
	/** Which one is chosen; undefined where there is no choice yet. */
	now: T | undefined;
	/** The word of an item, where it is not the item itself. */
	name?: (item: T) => string;
	disabled?: (item: T) => boolean;
	onPick: (item: T) => void;
}) {
	return (
		<fieldset className="segments">
			<legend className="sr">{label}</legend>
			{items.map((i) => (
				<button key={i} type="button" aria-pressed={i === now} disabled={disabled?.(i)} onClick={() => onPick(i)}>
					{name ? name(i) : i}
				</button>
			))}
		</fieldset>
	);
}

/** shown is what stands in a place of its own: a text with its hidden characters. */
export function shown(value: ReactNode): ReactNode {
	return typeof value === "string" ? visible(value) : value;
}

/** Facts are names and their values; as figures they are larger, for the top of a page. */
export function Facts({ items, figures }: { items: [name: string, value: ReactNode][]; figures?: boolean }) {
	return (
		<dl className={figures ? "facts figures" : "facts"}>
			{items.map(([name, value]) => (
				<div key={name}>
					<dt>{visible(name)}</dt>
					<dd>{shown(value)}</dd>
				</div>
			))}
		</dl>
	);
}

/** Empty says what would be here, and the command that brings it. */
export function Empty({ children, command }: { children: ReactNode; command?: string }) {
	return (
		<div className="empty">
			<p>{children}</p>
			{command ? <Command text={command} /> : null}
		</div>
	);
}

/** Loading shows nothing for half a second, then that data is on its way. */
export function Loading({ what }: { what: string }) {
	const [late, setLate] = useState(false);
	useEffect(() => {
		const t = setTimeout(() => setLate(true), 500);
		return () => clearTimeout(t);
	}, []);
	return (
		<div className="loading" aria-busy="true">
			{late ? `Reading ${what} …` : ""}
		</div>
	);
}

/** Failed says what went wrong with a part of the page; the rest of the page goes on. */
export function Failed({ error, retry, what }: { error: ApiError; retry?: () => void; what?: string }) {
	const said = sentence(error);
	return (
		<div className="failed" role="alert">
			<p>
				<strong>{error.code}</strong>
				{error.field ? <span className="mono"> {error.field}</span> : null}{" "}
				{said || (what ? `${what} could not be read.` : "")}
			</p>
			<p className="dim wrap">{visible(error.message)}</p>
			{retry ? (
				<button type="button" className="plain" onClick={retry}>
					Try again
				</button>
			) : null}
		</div>
	);
}

/** ReadFailed says why a query failed, and asks again; it is empty where the query did not fail. */
export function ReadFailed({ query, what }: { query: { error: unknown; refetch: () => unknown }; what: string }) {
	if (!query.error) return null;
	return <Failed error={asApiError(query.error)} retry={() => query.refetch()} what={what} />;
}

/** NotDone says what came of a write that failed: whether anything may have changed, and why. */
export function NotDone({ error }: { error: ApiError }) {
	return (
		<>
			<p>{error.outcome === "refused" ? "Nothing was changed." : "It may have been applied. Asking again is safe."}</p>
			<Failed error={error} />
		</>
	);
}

/** useStable keeps the last value that was there, so that a page does not go blank while it reads. */
export function useStable<T>(value: T | undefined): T | undefined {
	const last = useRef(value);
	if (value !== undefined) last.current = value;
	return last.current;
}
