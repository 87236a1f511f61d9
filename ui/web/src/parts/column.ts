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
	cell: (row: T) => ReactNode;
}

/** classOf is the class of the cells of a column. */
export function classOf<T>(c: Column<T>): string | undefined {
	return (
		[c.num ? "num" : "", c.grow ? "grow" : "", c.from ? `from-${c.from}` : ""].filter(Boolean).join(" ") || undefined
	);
}
