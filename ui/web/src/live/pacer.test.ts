import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Pacer } from "./pacer";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("it runs at once after a pause, and then no more often than it may", () => {
	const run = vi.fn();
	const p = new Pacer(run);
	p.ask(1000);
	expect(run).toHaveBeenCalledTimes(1);
	for (let i = 0; i < 5; i++) p.ask(1000);
	vi.advanceTimersByTime(999);
	expect(run).toHaveBeenCalledTimes(1);
	vi.advanceTimersByTime(1);
	expect(run).toHaveBeenCalledTimes(2); // once for all that was asked meanwhile
	vi.advanceTimersByTime(5000);
	expect(run).toHaveBeenCalledTimes(2);
	p.ask(1000);
	expect(run).toHaveBeenCalledTimes(3);
});

test("what is stopped does not run any more", () => {
	const run = vi.fn();
	const p = new Pacer(run);
	p.ask(1000);
	p.ask(1000);
	p.stop();
	vi.advanceTimersByTime(5000);
	expect(run).toHaveBeenCalledTimes(1);
});
