/** How times are shown. */
export type Times = "local" | "utc";

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** span writes a length of time in its two largest units: "12 m 4 s". ms is in milliseconds. */
export function span(ms: number): string {
	const sign = ms < 0 ? "-" : "";
	const n = Math.abs(ms);
	if (n < 1000) return `${sign}${Math.round(n)} ms`;
	if (n < minute) return `${sign}${Math.floor(n / 1000)} s`;
	if (n < hour) return sign + two(n, minute, "m", 1000, "s");
	if (n < day) return sign + two(n, hour, "h", minute, "m");
	return sign + two(n, day, "d", hour, "h");
}

function two(n: number, large: number, largeName: string, small: number, smallName: string): string {
	const a = Math.floor(n / large);
	const b = Math.floor((n % large) / small);
	return b ? `${a} ${largeName} ${b} ${smallName}` : `${a} ${largeName}`;
}

/** ago writes how far a time is from now: "2 m ago", "in 41 s". */
export function ago(at: number, now: number): string {
	const d = now - at;
	if (Math.abs(d) < 1000) return "now";
	return d > 0 ? `${span(d)} ago` : `in ${span(-d)}`;
}

/** clock writes a time with its zone. */
export function clock(at: number, times: Times): string {
	const d = new Date(at);
	if (times === "utc") return `${d.toISOString().replace("T", " ").replace("Z", "")} UTC`;
	const zone = -d.getTimezoneOffset();
	const local = new Date(at + zone * minute).toISOString().replace("T", " ").replace("Z", "");
	const hours = String(Math.floor(Math.abs(zone) / 60)).padStart(2, "0");
	const minutes = String(Math.abs(zone) % 60).padStart(2, "0");
	return `${local} ${zone < 0 ? "-" : "+"}${hours}:${minutes}`;
}

/** timeOfDay writes the hours, minutes, seconds and tenths of a time. */
export function timeOfDay(at: number, times: Times): string {
	return clock(at, times).slice(11, 21);
}

/** parseTime reads a time of the contract; undefined where there is none. */
export function parseTime(s: string | undefined | null): number | undefined {
	if (!s) return undefined;
	const t = Date.parse(s);
	return Number.isNaN(t) ? undefined : t;
}

/** parseSpan reads a duration of the contract, such as "1h30m" or "250ms", as milliseconds. */
export function parseSpan(s: string | undefined): number | undefined {
	if (!s) return undefined;
	const units: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000, m: minute, h: hour };
	let total = 0;
	let rest = s.startsWith("-") ? s.slice(1) : s;
	while (rest !== "") {
		const m = /^(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)/.exec(rest);
		if (!m) return rest === "0" ? total : undefined;
		total += Number(m[1]) * units[m[2]!]!;
		rest = rest.slice(m[0].length);
	}
	return s.startsWith("-") ? -total : total;
}

/** count groups the digits of a number: 88,120. */
export function count(n: number | undefined): string {
	return n === undefined ? "–" : n.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

/** many counts things by their name: "1 key", "88,120 keys". The plural has an s, unless it is given. n may be written already. */
export function many(n: number | string | undefined, one: string, several = `${one}s`): string {
	return `${typeof n === "string" ? n : count(n)} ${n === 1 || n === "1" ? one : several}`;
}

/** short writes a number in at most four places: 1.2 M. */
export function short(n: number): string {
	if (n < 10_000) return count(n);
	if (n < 1_000_000) return `${trim(n / 1000)} k`;
	if (n < 1_000_000_000) return `${trim(n / 1_000_000)} M`;
	return `${trim(n / 1_000_000_000)} G`;
}

function trim(n: number): string {
	return n < 100 ? n.toFixed(1).replace(".0", "") : Math.round(n).toString();
}

/** rate writes how often something happens in a second. */
export function rate(n: number | undefined): string {
	if (n === undefined) return "–";
	if (n === 0) return "0/s";
	return n < 10 ? `${n.toFixed(1)}/s` : `${short(Math.round(n))}/s`;
}

/** size writes bytes in binary units: 61 MiB. */
export function size(n: number | undefined): string {
	if (n === undefined) return "–";
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let i = 0;
	let v = n;
	while (v >= 1024 && i < units.length - 1) {
		v /= 1024;
		i++;
	}
	return `${i === 0 || v >= 100 ? Math.round(v) : trim(v)} ${units[i]}`;
}

/** tail shows the end of an id, which is what tells ids of the same minute apart. */
export function tail(id: string, n = 6): string {
	return id.length > n + 2 ? `…${id.slice(-n)}` : id;
}

/** Characters that a page would swallow, or that change the direction of what stands beside them. A tab and a new line are neither. */
const hidden = /(?![\t\n])[\p{Cc}\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** visible shows hidden characters: ASCII by its pictures, others as JSON escapes them. */
export function visible(text: string): string {
	return text.replace(hidden, (c) => {
		const code = c.codePointAt(0)!;
		if (code < 0x80) return String.fromCodePoint(0x2400 + (code === 0x7f ? 0x21 : code));
		return Array.from({ length: c.length }, (_, i) => `\\u${c.charCodeAt(i).toString(16).padStart(4, "0")}`).join("");
	});
}
