import { Fragment, useMemo } from "react";
import { visible } from "../format";
import { diffLines } from "./diff";

/** Diff shows in which lines two texts differ. */
export function Diff({ from, to, label }: { from: string; to: string; label: string }) {
	const lines = useMemo(() => diffLines(from, to), [from, to]);
	if (lines.every((l) => l.op === " ")) return <p className="dim">Nothing is different.</p>;
	return (
		// biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard
		<section className="bytes-body" tabIndex={0} aria-label={label}>
			<pre>
				{lines.map((l, i) => {
					const text = `${l.op} ${visible(l.text)}\n`;
					if (l.op === "+") return <ins key={i}>{text}</ins>;
					if (l.op === "-") return <del key={i}>{text}</del>;
					return <Fragment key={i}>{text}</Fragment>;
				})}
			</pre>
		</section>
	);
}
