import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, it } from "vitest";

const css = readFileSync(resolve(import.meta.dirname, "app.css"), "utf8");

/** [lightness 0–1, chroma, hue in degrees] */
type Oklch = [number, number, number];

/** Tokens of the first block of the style sheet, each with its colour in the light and in the dark theme. */
const tokens = new Map(
	[...css.matchAll(/^\t\t--([\w-]+): light-dark\(oklch\(([^)]*)\), oklch\(([^)]*)\)\);/gm)].map((m) => [
		m[1]!,
		[oklch(m[2]!), oklch(m[3]!)] as const,
	]),
);

function oklch(text: string): Oklch {
	const [l, c, h] = text.split(" ");
	return [Number.parseFloat(l!) / 100, Number(c), Number(h)];
}

/** Relative luminance as WCAG 2 has it: of the colour as sRGB shows it, channels cut to what it has. */
function luminance([l, c, h]: Oklch): number {
	const a = c * Math.cos((h * Math.PI) / 180);
	const b = c * Math.sin((h * Math.PI) / 180);
	const L = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
	const M = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
	const S = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
	const cut = (x: number) => Math.min(1, Math.max(0, x));
	const red = cut(4.0767416621 * L - 3.3077115913 * M + 0.2309699292 * S);
	const green = cut(-1.2684380046 * L + 2.6097574011 * M - 0.3413193965 * S);
	const blue = cut(-0.0041960863 * L - 0.7034186147 * M + 1.707614701 * S);
	return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: string, b: string, theme: 0 | 1): number {
	const [x, y] = [a, b].map((name) => luminance(tokens.get(name)![theme])).sort((p, q) => q - p);
	return (x! + 0.05) / (y! + 0.05);
}

const grounds = ["bg", "panel", "sunk", "wash", "bad", "warn"];
const hues = ["ready", "running", "scheduled", "blocked", "completed", "dead", "cancelled"];
const themes = { light: 0, dark: 1 } as const;

it("reads all tokens of colours", () => {
	expect([...tokens.keys()].sort()).toEqual(
		[...grounds, ...hues, "text", "dim", "accent", "on-accent", "line", "edge"].sort(),
	);
	expect(contrast("text", "text", 0)).toBe(1);
	// Known pairs: white on the light accent is about as dark as #005e94 makes it.
	expect(luminance([1, 0, 0])).toBeCloseTo(1, 3);
	expect(luminance([0, 0, 0])).toBeCloseTo(0, 3);
	expect(luminance([0.6279554, 0.2576833, 29.2338837])).toBeCloseTo(0.2126, 3); // red
	expect(luminance([0.8664396, 0.2948272, 142.4953389])).toBeCloseTo(0.7152, 3); // lime
});

for (const [name, theme] of Object.entries(themes)) {
	it(`keeps text readable on every ground, ${name}`, () => {
		const low: string[] = [];
		for (const on of grounds)
			for (const text of ["text", "dim", "accent", ...hues]) {
				const c = contrast(text, on, theme);
				if (c < 4.5) low.push(`${text} on ${on}: ${c.toFixed(2)}`);
			}
		for (const on of ["accent", "dead"]) {
			const c = contrast("on-accent", on, theme);
			if (c < 4.5) low.push(`on-accent on ${on}: ${c.toFixed(2)}`);
		}
		expect(low).toEqual([]);
	});

	it(`keeps signs and the edges of fields seen, ${name}`, () => {
		const low: string[] = [];
		for (const on of grounds) {
			const c = contrast("edge", on, theme);
			if (c < 3) low.push(`edge on ${on}: ${c.toFixed(2)}`);
		}
		// The used part of a meter beside the rest of it.
		for (const used of ["running", "blocked", "dead"]) {
			const c = contrast(used, "line", theme);
			if (c < 3) low.push(`${used} on line: ${c.toFixed(2)}`);
		}
		expect(low).toEqual([]);
	});
}
