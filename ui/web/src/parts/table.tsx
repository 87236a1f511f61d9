import type { HTMLAttributes } from "react";
import { shown } from "./basic";
import { type Column, classOf } from "./column";

/** Cells are the cells of a row; the first one names the row. */
export function Cells<T>({ columns, row, index }: { columns: readonly Column<T>[]; row: T; index: number }) {
	return columns.map((c, i) =>
		i === 0 ? (
			<th key={c.id} scope="row" className={classOf(c, c.look)}>
				{shown(c.cell(row, index))}
			</th>
		) : (
			<td key={c.id} className={classOf(c, c.look)}>
				{shown(c.cell(row, index))}
			</td>
		),
	);
}

/** Table is a table of a few rows, without marks and keys: all of them are in the document. */
export function Table<T>({
	label,
	columns,
	rows,
	id,
	rowProps,
}: {
	/** Name of the table, for those who cannot see it. */
	label: string;
	columns: readonly Column<T>[];
	rows: readonly T[];
	id: (row: T, index: number) => string | number | undefined;
	/** How a row differs from the others. */
	rowProps?: (row: T, index: number) => HTMLAttributes<HTMLTableRowElement>;
}) {
	return (
		<div className="scroll">
			<table className="small" aria-label={label}>
				<thead>
					<tr>
						{columns.map((c) => (
							<th key={c.id} scope="col" className={classOf(c)}>
								{c.name}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map((row, i) => (
						<tr key={id(row, i)} {...rowProps?.(row, i)}>
							<Cells columns={columns} row={row} index={i} />
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}
