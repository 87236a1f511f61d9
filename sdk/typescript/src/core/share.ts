// How a worker divides its slots over the streams of its partitions: a pure function of what each stream uses. proto/conformance holds it to
// what workers of all languages do. Times are milliseconds of one clock; 0 is never.

/** One stream, as the division sees it. */
export interface Share {
	/** Its window: how many tasks it may have at once. */
	slots: number;
	/** What the window is to become, as soon as others have given up what it lacks. */
	target: number;
	/** How many tasks take a slot now. */
	used: number;
	/** Its server may give it tasks. */
	up: boolean;
	/** Its server told of tasks while it had no slot. */
	wanted: boolean;
	/** When its window was full last. */
	filled: number;
	/** When slots stood open on it last, and since when they do. */
	looked: number;
	opened: number;
	/** It uses all that it has. */
	hot: boolean;
}

export const newShare = (slots: number): Share => ({
	slots,
	target: 0,
	used: 0,
	up: false,
	wanted: false,
	filled: 0,
	looked: 0,
	opened: 0,
	hot: false,
});

/** How long a partition may wait until a free slot comes by, when there are fewer slots than partitions. */
const lookEvery = 250;
/** A stream whose window was full counts for so long as one that wants more: longer where slots travel, as it is looked at less often. */
const hotFor = 250;
const hotRoaming = 1000;

/** How long a travelling slot stays where it finds nothing: short enough to come by everywhere in time, with half of the slots. */
export const stay = (total: number, streams: number): number =>
	Math.min(Math.max((lookEvery * total) / (2 * streams), 5), 25);

function heat(streams: Share[], now: number, roams: boolean): boolean {
	let any = false;
	for (const s of streams) {
		const full = now - s.filled < (roams ? hotRoaming : hotFor);
		s.hot = s.up && (full || (!roams && s.slots > 0 && s.used >= s.slots));
		any ||= s.hot;
	}
	return any;
}

/**
 * Sets the targets where there is a slot for every stream: an even share for each, unless some stream uses all of its own. Then those share
 * evenly what the others have no use for; these keep one slot free, so that no task waits for it. Returns whether a stream uses all.
 */
export function divide(total: number, streams: Share[], now: number): boolean {
	const n = streams.length;
	if (!heat(streams, now, false)) {
		streams.forEach((s, i) => {
			s.target = Math.floor(total / n) + (i < total % n ? 1 : 0);
		});
		return false;
	}
	// Round by round, streams that want no more than an even share get what they want; the rest is shared by those that are left.
	let left = total;
	const open = new Set(streams);
	for (let found = true; found; ) {
		found = false;
		const level = Math.floor(left / open.size);
		for (const s of open) {
			const want = s.used + (s.up ? 1 : 0);
			if (s.hot || want > level) continue;
			s.target = want;
			left -= want;
			open.delete(s);
			found = true;
		}
	}
	let rest = open.size;
	for (const s of open) {
		s.target = Math.ceil(left / rest);
		left -= s.target;
		rest--;
	}
	return true;
}

/**
 * Sets the targets where there are fewer slots than streams: the free ones travel, so that each stream is looked at in time. Where a slot
 * finds work it stays, but for what it takes to look at the others.
 */
export function roam(total: number, streams: Share[], now: number): void {
	const busy = heat(streams, now, true);
	const dwell = stay(total, streams.length);
	let dealt = 0;
	const byAge: Share[] = [];
	for (const s of streams) {
		if (!s.up) {
			s.target = s.opened = 0;
			continue;
		}
		if (s.slots <= s.used) s.opened = 0;
		else {
			s.looked = now;
			s.opened ||= now;
		}
		s.looked = Math.max(s.looked, s.filled);
		s.wanted &&= s.slots === 0;
		if (s.wanted) s.looked = 0; // tasks wait there
		dealt += s.target;
		byAge.push(s);
	}
	byAge.sort((a, b) => a.looked - b.looked);
	// While some stream has work, half of the slots stay there and the others look around.
	let quota = busy ? Math.max(Math.floor(total / 2), 1) : total;
	for (const s of byAge) {
		if (quota === 0 || now - s.looked < lookEvery - dwell) break;
		if (s.target > s.used) continue; // a slot is on its way
		// A slot that no stream has, or one that another stream gives up.
		if (dealt < total) dealt++;
		else {
			const from = donor(byAge, s, now, dwell);
			if (!from) break;
			from.target--;
		}
		s.target++;
		quota--;
	}
	for (const s of byAge) {
		for (; dealt < total && s.target <= s.used; dealt++) s.target++;
	}
	if (busy) gather(byAge, now, dwell);
}

const idleFor = (s: Share, ms: number, now: number): boolean => s.opened > 0 && now - s.opened >= ms;

/** From which stream a slot is taken: one where it stands open in vain, else one where it is at work, and only then one that wants more. */
function donor(streams: Share[], but: Share, now: number, dwell: number): Share | undefined {
	const rank = (s: Share): number => (s.hot ? 2 : s.target <= s.used ? 1 : 0);
	let best: Share | undefined;
	for (const s of streams) {
		if (s === but || s.target === 0 || (rank(s) === 0 && !idleFor(s, dwell, now))) continue;
		if (!best || rank(s) < rank(best) || (rank(s) === rank(best) && s.target > best.target)) best = s;
	}
	return best;
}

/** Moves slots that stand open in vain to the streams that want more, in turn. */
function gather(streams: Share[], now: number, dwell: number): void {
	for (const s of streams) {
		while (!s.hot && s.target > s.used && idleFor(s, dwell, now)) {
			let to: Share | undefined;
			for (const x of streams) if (x.hot && (!to || x.target < to.target)) to = x;
			s.target--;
			to!.target++;
		}
	}
}

/** Gives a stream another window. */
export function setSlots(s: Share, slots: number, now: number): void {
	s.slots = slots;
	if (slots <= s.used) s.opened = 0;
	else s.opened ||= now;
}
