import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { askedAt, noteReads } from "./asked";

beforeEach(() => void vi.useFakeTimers({ now: 1_000 }));
afterEach(() => void vi.useRealTimers());

test("a read is as old as its question, not as its answer", async () => {
	const client = new QueryClient();
	noteReads(client.getQueryCache());
	const after = (ms: number) => () => new Promise((r) => setTimeout(() => r(ms), ms));
	for (const ms of [400, 30]) {
		const began = Date.now();
		const read = client.fetchQuery({ queryKey: ["k"], queryFn: after(ms), staleTime: 0 });
		await vi.advanceTimersByTimeAsync(ms);
		await read;
		const answered = client.getQueryState(["k"])?.dataUpdatedAt ?? 0;
		expect(answered).toBe(began + ms);
		expect(askedAt(answered)).toBe(began);
		await vi.advanceTimersByTimeAsync(1);
	}
});

test("of reads that are answered at once the oldest question counts", async () => {
	const client = new QueryClient();
	noteReads(client.getQueryCache());
	const at = Date.now();
	const until = (ms: number) => () => new Promise((r) => setTimeout(() => r(ms), ms));
	const first = client.fetchQuery({ queryKey: ["first"], queryFn: until(50) });
	await vi.advanceTimersByTimeAsync(40);
	const second = client.fetchQuery({ queryKey: ["second"], queryFn: until(10) });
	await vi.advanceTimersByTimeAsync(10);
	await Promise.all([first, second]);
	expect(askedAt(at + 50)).toBe(at);
});

test("what was set by hand is as old as it says", () => {
	const client = new QueryClient();
	noteReads(client.getQueryCache());
	client.setQueryData(["set"], 1, { updatedAt: 77 });
	expect(askedAt(77)).toBe(77);
});
