import { useSyncExternalStore } from "react";

// One timer for every time that is shown. The server's clock counts: `offset` is how far it is ahead of this machine's.
let offset = 0;
let current = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

/** learnServerTime is told of a time that the server gave just now. */
export function learnServerTime(at: number): void {
	const seen = at - Date.now();
	// Answers take a while, so that a difference below this says nothing.
	if (Math.abs(seen - offset) > 2000) offset = seen;
}

/** serverNow is the server's time in milliseconds. */
export function serverNow(): number {
	return Date.now() + offset;
}

/** useNow is the server's time, new each second. */
export function useNow(): number {
	return useSyncExternalStore(
		(f) => {
			listeners.add(f);
			timer ??= setInterval(() => {
				current = serverNow();
				for (const g of listeners) g();
			}, 1000);
			return () => {
				listeners.delete(f);
				if (listeners.size === 0) {
					clearInterval(timer);
					timer = undefined;
				}
			};
		},
		() => (timer ? current : refresh()),
	);
}

function refresh(): number {
	const t = serverNow();
	if (Math.abs(t - current) >= 1000) current = t;
	return current;
}
