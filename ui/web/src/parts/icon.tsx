// Shapes of 16 by 16, drawn with lines: characters of their kind are missing in many fonts.
const shapes: Record<string, string> = {
	key: "M10.5 2.5a3 3 0 1 1-2.6 4.5L2.5 12.4V14h3v-1.5H7V11h1l.6-1.4",
	ref: "M5 5.5v5M5 5.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm0 8a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm6-8a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Zm0 0c0 3-6 2-6 5",
	point: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Zm0-4a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z",
	plus: "M8 3v10M3 8h10",
	check: "m3 8.5 3.5 3.5L13 4.5",
	pause: "M5.5 3v10M10.5 3v10",
	hourglass: "M4 2.5h8M4 13.5h8M5 2.5c0 3 3 3.5 3 5.5s-3 2.5-3 5.5M11 2.5c0 3-3 3.5-3 5.5s3 2.5 3 5.5",
	clock: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM8 5v3l2 2",
	worker: "M8 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Zm-5 6c0-3 2-4.5 5-4.5s5 1.5 5 4.5",
	stop: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM4.2 4.2l7.6 7.6",
	next: "M3 8h9M8.5 4.5 12 8l-3.5 3.5",
	dot: "M8 8h.01",
	copy: "M6 5.5h7v8H6zM3.5 10.5h-1v-8h7v1",
};

/** Icon is a shape beside a word that says the same. */
export function Icon({ name }: { name: string }) {
	return (
		<svg className="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
			<path d={shapes[name] ?? shapes["dot"]} />
		</svg>
	);
}
