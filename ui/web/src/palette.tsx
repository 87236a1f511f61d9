import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useId, useLayoutEffect, useMemo, useRef, useState } from "react";
import { api, call } from "./api/client";
import { isName } from "./names";
import { useNamespace } from "./namespace";
import { usePlaces } from "./shell";

interface Entry {
	kind: string;
	name: string;
	href: string;
}

const shortcuts: [string, [string, string][]][] = [
	[
		"Go",
		[
			["⌘K", "search and jump"],
			["g o", "overview"],
			["g q", "queues"],
			["g t", "tasks"],
			["g d", "dead letters"],
			["g a", "batches"],
			["g b", "bulk jobs"],
			["g w", "workers"],
			["g n", "crons"],
			["g l", "limits"],
			["g k", "keys"],
			["g r", "repositories"],
			["g s", "search"],
			["g c", "cluster"],
		],
	],
	[
		"Lists",
		[
			["j k", "down, up"],
			["Enter", "open"],
			["o", "open in a new tab"],
			["x", "mark"],
			["⇧x", "mark a range"],
			["e", "expand"],
			["/", "filter"],
			["u", "back"],
		],
	],
	[
		"Task",
		[
			["1…6", "tabs"],
			["r", "retry"],
			["c", "cancel…"],
			["y", "copy the id"],
			["Y", "copy as curl"],
			["[ ]", "attempt before, after"],
		],
	],
	[
		"Page",
		[
			["Space", "hold, go on"],
			["Esc", "close"],
			["?", "this list"],
		],
	],
];

/** isId tells whether a text is a whole id of a task. */
export function isId(text: string): boolean {
	return (
		/^[0-9A-HJKMNP-TV-Z]{26}$/i.test(text) ||
		/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text)
	);
}

/** Palette finds places, queues and tasks by what is typed, and lists the shortcuts. */
export function Palette({ first, onClose }: { first: "search" | "keys"; onClose: () => void }) {
	const ref = useRef<HTMLDialogElement>(null);
	const ns = useNamespace();
	const navigate = useNavigate();
	const places = usePlaces();
	const list = useId();
	const [text, setText] = useState("");
	const [at, setAt] = useState(0);
	useLayoutEffect(() => {
		const d = ref.current!;
		d.showModal();
		return () => d.close();
	}, []);
	const typed = text.trim();
	const queues = useQuery({
		queryKey: ["palette", ns, typed],
		enabled: first === "search" && isName(typed) && !isId(typed),
		queryFn: () => call(api.GET("/v1/queues", { params: { query: { ns, prefix: typed, limit: 8 } } })),
	});
	const crons = useQuery({
		queryKey: ["palette crons", ns, typed],
		enabled: first === "search" && isName(typed) && !isId(typed),
		queryFn: () => call(api.GET("/v1/crons", { params: { query: { ns, prefix: typed, limit: 4 } } })),
	});
	const limiters = useQuery({
		queryKey: ["palette limiters", ns, typed],
		enabled: first === "search" && isName(typed) && !isId(typed),
		queryFn: () => call(api.GET("/v1/limiters", { params: { query: { ns, prefix: typed, limit: 4 } } })),
	});
	const entries = useMemo<Entry[]>(() => {
		const low = typed.toLowerCase();
		const out: Entry[] = [];
		if (isId(typed)) out.push({ kind: "Task", name: typed, href: `/${ns}/tasks/${typed}` });
		for (const q of queues.data?.queues ?? []) {
			out.push({ kind: "Queue", name: q.queue ?? "", href: `/${ns}/queues/${encodeURIComponent(q.queue ?? "")}` });
			if (q.limits) {
				const name = q.queue ?? "";
				out.push({ kind: "Limits", name, href: `/${ns}/queues/${encodeURIComponent(name)}/limits` });
			}
			if ((q.dead ?? 0) > 0)
				out.push({
					kind: "Dead letters",
					name: q.queue ?? "",
					href: `/${ns}/dead?queue=${encodeURIComponent(q.queue ?? "")}`,
				});
		}
		for (const c of crons.data?.crons ?? [])
			out.push({ kind: "Cron", name: c.name ?? "", href: `/${ns}/crons/${encodeURIComponent(c.name ?? "")}` });
		for (const x of limiters.data?.limiters ?? [])
			out.push({ kind: "Limiter", name: x.name ?? "", href: `/${ns}/limits/${encodeURIComponent(x.name ?? "")}` });
		for (const p of places)
			if (p.name.toLowerCase().includes(low)) out.push({ kind: "Go", name: p.name, href: p.to.replace("$ns", ns) });
		if (typed && !isId(typed)) {
			out.push({
				kind: "Tasks",
				name: `of kind ${typed}`,
				href: `/${ns}/tasks?q=${encodeURIComponent(`kind:${typed}`)}`,
			});
			out.push({
				kind: "Tasks",
				name: `with unique key ${typed}`,
				href: `/${ns}/tasks?q=${encodeURIComponent(`unique:${typed}`)}`,
			});
		}
		return out.slice(0, 14);
	}, [typed, queues.data, crons.data, limiters.data, places, ns]);
	const go = (e: Entry | undefined, tab: boolean) => {
		if (!e) return;
		if (tab) window.open(`/ui${e.href}`, "_blank", "noopener");
		else navigate({ href: e.href } as never);
		onClose();
	};
	return (
		<dialog
			ref={ref}
			className="palette"
			aria-label={first === "keys" ? "Shortcuts" : "Search and jump"}
			onCancel={(e) => {
				e.preventDefault();
				onClose();
			}}
			onClick={(e) => e.target === ref.current && onClose()}
			onKeyDown={() => {}}
		>
			{first === "keys" ? (
				<>
					<div className="shortcuts">
						{shortcuts.map(([name, keys]) => (
							<section key={name}>
								<h2>{name}</h2>
								<dl>
									{keys.map(([k, what]) => (
										<div key={k}>
											<dt>
												<kbd>{k}</kbd>
											</dt>
											<dd>{what}</dd>
										</div>
									))}
								</dl>
							</section>
						))}
					</div>
					<footer>
						<span className="dim">Single letters can be switched off in Settings.</span>
						<button type="button" className="plain" onClick={onClose}>
							Close
						</button>
					</footer>
				</>
			) : (
				<>
					<input
						role="combobox"
						aria-expanded="true"
						aria-controls={list}
						aria-activedescendant={entries[at] ? `${list}-${at}` : undefined}
						aria-label="Queue, place, or id of a task"
						placeholder="A queue, a place, or the id of a task"
						value={text}
						autoComplete="off"
						spellCheck={false}
						onChange={(e) => {
							setText(e.target.value);
							setAt(0);
						}}
						onKeyDown={(e) => {
							if (e.key === "ArrowDown") setAt(Math.min(at + 1, entries.length - 1));
							else if (e.key === "ArrowUp") setAt(Math.max(at - 1, 0));
							else if (e.key === "Enter") go(entries[at], e.metaKey || e.ctrlKey);
							else return;
							e.preventDefault();
						}}
					/>
					<div id={list} role="listbox" aria-label="Found" className="found">
						{entries.map((e, i) => (
							// biome-ignore lint/a11y/useKeyWithClickEvents: the keys are those of the field above
							<div
								key={`${e.kind} ${e.href}`}
								id={`${list}-${i}`}
								role="option"
								tabIndex={-1}
								aria-selected={i === at}
								onMouseMove={() => setAt(i)}
								onClick={(c) => go(e, c.metaKey || c.ctrlKey)}
							>
								<span className="dim">{e.kind}</span> {e.name}
							</div>
						))}
					</div>
				</>
			)}
		</dialog>
	);
}
