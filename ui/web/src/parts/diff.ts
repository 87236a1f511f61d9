interface Line {
	/** "-" is only in the first text, "+" only in the second, " " in both. */
	op: " " | "-" | "+";
	text: string;
}

/** Texts of more lines than this are not compared line by line: the work grows with the product of both. */
const most = 1000;

/** diffLines compares two texts line by line. */
export function diffLines(a: string, b: string): Line[] {
	const x = a === "" ? [] : a.split("\n");
	const y = b === "" ? [] : b.split("\n");
	if (x.length > most || y.length > most)
		return [...x.map((text): Line => ({ op: "-", text })), ...y.map((text): Line => ({ op: "+", text }))];
	// longest[i][j] is how many lines x from i and y from j have in common.
	const longest = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
	for (let i = x.length - 1; i >= 0; i--)
		for (let j = y.length - 1; j >= 0; j--)
			longest[i]![j] = x[i] === y[j] ? longest[i + 1]![j + 1]! + 1 : Math.max(longest[i + 1]![j]!, longest[i]![j + 1]!);
	const out: Line[] = [];
	let i = 0;
	let j = 0;
	while (i < x.length || j < y.length) {
		if (i < x.length && j < y.length && x[i] === y[j]) {
			out.push({ op: " ", text: x[i++]! });
			j++;
		} else if (j >= y.length || (i < x.length && longest[i + 1]![j]! >= longest[i]![j + 1]!))
			out.push({ op: "-", text: x[i++]! });
		else out.push({ op: "+", text: y[j++]! });
	}
	return out;
}
