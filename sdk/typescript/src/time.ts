import type { Duration } from "./gen/google/protobuf/duration.js";
import type { Timestamp } from "./gen/google/protobuf/timestamp.js";

export const toDuration = (ms: number): Duration => ({
	seconds: BigInt(Math.trunc(ms / 1000)),
	nanos: Math.round((ms % 1000) * 1e6),
});

export const fromDuration = (d: Duration | undefined): number => (d ? Number(d.seconds) * 1000 + d.nanos / 1e6 : 0);

export function toTimestamp(d: Date): Timestamp {
	const ms = d.getTime();
	return { seconds: BigInt(Math.floor(ms / 1000)), nanos: (((ms % 1000) + 1000) % 1000) * 1e6 };
}

export const fromTimestamp = (t: Timestamp | undefined): Date | undefined =>
	t && new Date(Number(t.seconds) * 1000 + Math.floor(t.nanos / 1e6));
