import { useSyncExternalStore } from "react";
import type { Times } from "./format";

/** Settings are what this browser keeps. Nothing secret is among them. */
export interface Settings {
	theme: "system" | "light" | "dark";
	density: "dense" | "normal" | "wide";
	times: Times;
	/** Shortcuts of single letters. */
	letters: boolean;
	views: { name: string; href: string }[];
}

const key = "millrace.settings";
const first: Settings = { theme: "system", density: "normal", times: "local", letters: true, views: [] };
/** Saved views: at most this many. */
export const maxViews = 20;

let now: Settings = read();
const listeners = new Set<() => void>();

function read(): Settings {
	try {
		return { ...first, ...(JSON.parse(localStorage.getItem(key) ?? "{}") as Partial<Settings>) };
	} catch {
		return first; // what is stored is damaged, or storage is off
	}
}

export function setSettings(change: Partial<Settings>): void {
	now = { ...now, ...change };
	try {
		localStorage.setItem(key, JSON.stringify(now));
	} catch {
		// Storage is full or off: the choice holds until the page is left.
	}
	apply();
	for (const f of listeners) f();
}

export function settings(): Settings {
	return now;
}

export function useSettings(): Settings {
	return useSyncExternalStore(
		(f) => {
			listeners.add(f);
			return () => listeners.delete(f);
		},
		() => now,
	);
}

/** apply shows the theme and the density. */
export function apply(): void {
	const root = document.documentElement;
	root.dataset["theme"] = now.theme;
	root.dataset["density"] = now.density;
}
