/** Pacer calls a function when it is asked to: at once after a pause, and then no more often than each `atMost` milliseconds. */
export class Pacer {
	private last = Number.NEGATIVE_INFINITY;
	private timer: ReturnType<typeof setTimeout> | undefined;

	constructor(private readonly run: () => void) {}

	ask(atMost: number): void {
		if (this.timer !== undefined) return; // it is on its way
		const wait = this.last + atMost - performance.now();
		if (wait <= 0) this.go();
		else this.timer = setTimeout(() => this.go(), wait);
	}

	stop(): void {
		clearTimeout(this.timer);
		this.timer = undefined;
	}

	private go(): void {
		this.timer = undefined;
		this.last = performance.now();
		this.run();
	}
}
