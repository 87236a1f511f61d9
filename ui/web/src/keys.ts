import { useEffect, useRef } from "react";
import { settings } from "./settings";

type Handler = (e: KeyboardEvent) => void;

// The newest page comes first: a letter of a list wins over one of the shell.
const stack: Record<string, Handler>[] = [];
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

function typing(target: EventTarget | null): boolean {
	const el = target as HTMLElement | null;
	return !!el?.closest?.("input:not([type=checkbox]):not([type=radio]),textarea,select,[contenteditable]");
}

function onKey(e: KeyboardEvent): void {
	if (e.defaultPrevented || e.isComposing) return;
	const mod = e.metaKey || e.ctrlKey;
	let name = e.key;
	if (mod) name = `mod+${e.key.toLowerCase()}`;
	else if (e.altKey) return;
	else if (typing(e.target) || document.querySelector("dialog[open]:not(.palette)")) return;
	else if (name.length === 1 && !settings().letters) return;
	else if ((name === " " || name === "Enter") && (e.target as HTMLElement).closest?.("button,a,summary,input")) return;
	if (mod && typing(e.target) && name !== "mod+k" && name !== "mod+enter") return;
	const full = prefix ? `${prefix} ${name}` : name;
	prefix = "";
	clearTimeout(prefixTimer);
	for (const keys of [...stack].reverse()) {
		const f = keys[full];
		if (!f) continue;
		e.preventDefault();
		f(e);
		return;
	}
	if (full === "g") {
		prefix = "g";
		prefixTimer = setTimeout(() => {
			prefix = "";
		}, 1500);
	}
}

/** useKeys gives keys to the page while the component is there: "j", "?", "g q", "mod+k". Letters do nothing in fields and in dialogs. */
export function useKeys(keys: Record<string, Handler>): void {
	const latest = useRef(keys);
	latest.current = keys;
	useEffect(() => {
		const entry = new Proxy({} as Record<string, Handler>, { get: (_, name: string) => latest.current[name] });
		if (stack.length === 0) document.addEventListener("keydown", onKey);
		stack.push(entry);
		return () => {
			stack.splice(stack.indexOf(entry), 1);
			if (stack.length === 0) document.removeEventListener("keydown", onKey);
		};
	}, []);
}
