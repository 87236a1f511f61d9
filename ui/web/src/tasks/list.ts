import type { Schemas } from "../api/client";
import type { Task } from "./filter";

type Page = Pick<Schemas["ListResponse"], "tasks" | "cursor" | "inspected" | "reached">;

/** Row is a place of the list. Rows far from what is seen keep their ids only, and are read again when they come into sight. */
export interface Row {
	id: string;
	task: Task | undefined;
	/** It is not there any more. */
	gone: boolean;
}

/** Tasks of a page. */
export const pageLength = 100;
/** Rows that are kept whole on each side of those that are seen. */
const kept = 5 * pageLength;
/** A first page that looked at more tasks than this is not read again and again to see what is newer. */
const cheap = 2000;

/**
 * TaskList is a list by cursor pages. It is a snapshot: rows never move, cells of those that are seen change in place, and what is newer is
 * counted and offered.
 */
export class TaskList {
	rows: readonly Row[] = [];
	/** Tasks that were looked at so far. */
	inspected = 0;
	/** How far that came, in the order of the list, where the server tells it. */
	reached: string | undefined;
	/** There is more to look at. */
	open = true;
	/** The last page was not full, so that looking on may take long: who looks decides. */
	thin = false;
	busy = false;
	error: unknown;
	/** Tasks at the beginning that are not in the list. */
	newer = 0;
	/** There may be more than newer. */
	newerMore = false;
	private cursor = "";
	private firstInspected = 0;
	private seen: [first: number, last: number] = [0, 0];
	private readonly at = new Map<string, number>();
	private readonly listeners = new Set<() => void>();
	private closed = false;
	private version = 0;

	constructor(
		private readonly list: (cursor: string) => Promise<Page>,
		private readonly get: (ids: string[]) => Promise<Task[]>,
	) {}

	listen = (f: () => void): (() => void) => {
		this.listeners.add(f);
		return () => this.listeners.delete(f);
	};

	state = (): number => this.version;

	close(): void {
		this.closed = true;
	}

	private changed(): void {
		this.version++;
		if (!this.closed) for (const f of this.listeners) f();
	}

	/** more reads the next page. */
	async more(): Promise<void> {
		if (this.busy || !this.open) return;
		this.busy = true;
		this.error = undefined;
		this.changed();
		try {
			const page = await this.list(this.cursor);
			const tasks = page.tasks ?? [];
			const rows = [...this.rows];
			for (const task of tasks) {
				const id = task.id ?? "";
				if (this.at.has(id)) continue; // it moved while pages were read
				this.at.set(id, rows.length);
				rows.push({ id, task, gone: false });
			}
			if (this.cursor === "") this.firstInspected = page.inspected ?? tasks.length;
			this.inspected += page.inspected ?? tasks.length;
			this.reached = page.reached;
			this.cursor = page.cursor ?? "";
			this.open = this.cursor !== "";
			this.thin = tasks.length < pageLength;
			this.rows = rows;
			this.forget();
		} catch (e) {
			this.error = e;
		} finally {
			this.busy = false;
			this.changed();
		}
	}

	/** onEnd reads on, unless that may take long. */
	onEnd = (): void => {
		if (!this.thin && this.error === undefined) void this.more();
	};

	/** onRange is told which rows are seen. */
	onRange = (first: number, last: number): void => {
		this.seen = [first, last];
		if (this.rows.slice(first, last + 1).some((r) => !r.task && !r.gone)) void this.refresh();
	};

	/** refresh reads the rows that are seen. */
	async refresh(): Promise<void> {
		const [first, last] = this.seen;
		const ids = this.rows.slice(first, Math.min(last + 1, first + 100)).map((r) => r.id);
		if (ids.length === 0) return;
		let tasks: Task[];
		try {
			tasks = await this.get(ids);
		} catch {
			return; // what is shown stays as it is; the next round asks again
		}
		const found = new Map(tasks.map((t) => [t.id, t]));
		let rows: Row[] | undefined;
		for (const id of ids) {
			const i = this.at.get(id)!;
			const was = this.rows[i];
			const task = found.get(id);
			if (!was || (was.task && task && JSON.stringify(was.task) === JSON.stringify(task))) continue;
			if (!task && was.gone) continue;
			rows ??= [...this.rows];
			rows[i] = { id, task: task ?? was.task, gone: !task };
		}
		if (!rows) return;
		this.rows = rows;
		this.forget();
		this.changed();
	}

	/** peek counts what is newer than the list. */
	async peek(): Promise<void> {
		if (this.busy || this.firstInspected > cheap) return;
		let page: Page;
		try {
			page = await this.list("");
		} catch {
			return;
		}
		const unknown = (page.tasks ?? []).filter((t) => !this.at.has(t.id ?? "")).length;
		const more = unknown === pageLength;
		if (unknown === this.newer && more === this.newerMore) return;
		this.newer = unknown;
		this.newerMore = more;
		this.changed();
	}

	/** forget drops what rows show that are far from those that are seen. */
	private forget(): void {
		if (this.rows.length <= 2 * kept) return;
		const [first, last] = this.seen;
		const far = (i: number) => i < first - kept || i > last + kept;
		if (!this.rows.some((r, i) => r.task && far(i))) return;
		this.rows = this.rows.map((r, i) => (r.task && far(i) ? { id: r.id, task: undefined, gone: r.gone } : r));
	}
}
