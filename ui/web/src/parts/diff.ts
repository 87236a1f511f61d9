export interface Line {
	side: "a" | "b" | "both";
	text: string;
}

/** Texts of more lines than this are not compared line by line: the work grows with the product of both. */
const most = 1000;

/** lines compares two texts line by line, by their longest common subsequence. */
export function lines(a: string, b: string): Line[] {
	const x = a === "" ? [] : a.split("\n");
	const y = b === "" ? [] : b.split("\n");
	if (x.length > most || y.length > most)
		return [...x.map((text): Line => ({ side: "a", text })), ...y.map((text): Line => ({ side: "b", text }))];
	// length[i][j] is the length of the longest common subsequence of what follows line i of x and line j of y.
	const width = y.length + 1;
	const length = new Uint16Array((x.length + 1) * width);
	for (let i = x.length - 1; i >= 0; i--)
		for (let j = y.length - 1; j >= 0; j--)
			length[i * width + j] =
				x[i] === y[j]
					? length[(i + 1) * width + j + 1]! + 1
					: Math.max(length[(i + 1) * width + j]!, length[i * width + j + 1]!);
	const out: Line[] = [];
	let i = 0;
	let j = 0;
	while (i < x.length || j < y.length) {
		if (i < x.length && j < y.length && x[i] === y[j]) {
			out.push({ side: "both", text: x[i]! });
			i++;
			j++;
		} else if (j >= y.length || (i < x.length && length[(i + 1) * width + j]! >= length[i * width + j + 1]!))
			out.push({ side: "a", text: x[i++]! });
		else out.push({ side: "b", text: y[j++]! });
	}
	return out;
}
