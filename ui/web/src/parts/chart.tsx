import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
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

/**
 * Drawing draws a chart. What it draws with is read late: where that is not reached, as the server is away, the rest of the page goes on, and
 * it is asked for again.
 */
function Drawing(props: ChartProps) {
	const plot = useQuery({
		queryKey: ["chart-plot"],
		queryFn: async () => ({ Plot: (await import("./chart-plot")).default }),
		staleTime: Number.POSITIVE_INFINITY,
		retry: false,
		refetchInterval: (q) => (q.state.data ? false : 5000),
	});
	if (plot.data) return <plot.data.Plot {...props} />;
	return (
		<div className="plot">
			{plot.error ? <p className="dim">The drawing is not loaded. The table has the same figures.</p> : null}
		</div>
	);
}

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
				<Drawing {...props} />
			)}
		</figure>
	);
}
