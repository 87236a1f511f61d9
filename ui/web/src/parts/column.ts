import type { ReactNode } from "react";

/** Column is one column of a table. */
export interface Column<T> {
	id: string;
	name: ReactNode;
	/** Right-aligned with tabular figures. */
	num?: boolean;
	/** Hidden where the page is narrower than this many pixels. */
	from?: 600 | 900 | 1200;
	/** Takes what room is left, and cuts its text. */
	grow?: boolean;
	/** Name of the order of the server, where the column can be sorted by. */
	sort?: string;
	/** Further classes of its cells, such as mono. */
	look?: string;
	/** What a row shows in it; index is the place of the row, from 0. */
	cell: (row: T, index: number) => ReactNode;
}

/** classOf is the class of the head of a column, or with `look` of its cells. */
export function classOf<T>(c: Column<T>, look = ""): string | undefined {
	return (
		[c.num ? "num" : "", c.grow ? "grow" : "", c.from ? `from-${c.from}` : "", look].filter(Boolean).join(" ") ||
		undefined
	);
}
