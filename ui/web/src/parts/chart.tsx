import { lazy, Suspense, useState } from "react";
import { clock } from "../format";
import { useSettings } from "../settings";

export interface Series {
	name: string;
	/** One value a step; null where nothing is known. */
	values: (number | null)[];
	/** Colour, as a custom property such as --ready; otherwise by the place in the list. */
	hue?: string;
}

export interface ChartProps {
	/** What the chart shows, in a line, for those who cannot see it. */
	summary: string;
	/** Milliseconds of each step. */
	times: number[];
	series: Series[];
	unit: string;
}

const Plot = lazy(() => import("./chart-plot"));

/** Chart draws series over time. The same data is a table behind a button. */
export function Chart(props: ChartProps) {
	const [table, setTable] = useState(false);
	const { times } = useSettings();
	return (
		<figure className="chart">
			<figcaption>
				<span>{props.summary}</span>
				<button type="button" className="quiet" aria-pressed={table} onClick={() => setTable(!table)}>
					as a table
				</button>
			</figcaption>
			{table ? (
				// biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard
				<section className="chart-table" tabIndex={0} aria-label={props.summary}>
					<table>
						<thead>
							<tr>
								<th scope="col">time</th>
								{props.series.map((s) => (
									<th key={s.name} scope="col" className="num">
										{s.name}
									</th>
								))}
							</tr>
						</thead>
						<tbody>
							{props.times.map((t, i) => (
								<tr key={t}>
									<th scope="row">{clock(t, times)}</th>
									{props.series.map((s) => (
										<td key={s.name} className="num">
											{s.values[i] ?? "–"}
										</td>
									))}
								</tr>
							))}
						</tbody>
					</table>
				</section>
			) : (
				<Suspense fallback={<div className="plot" />}>
					<Plot {...props} />
				</Suspense>
			)}
		</figure>
	);
}
