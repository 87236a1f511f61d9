/** Behind what stands at `i`: a text, an object, a list, or a word. The text is JSON, so that brackets are in pairs. */
function behind(text: string, i: number): number {
	if (text[i] === '"') {
		for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
		return i + 1;
	}
	if (text[i] !== "{" && text[i] !== "[") {
		while (i < text.length && !/[\s,\]}]/.test(text[i]!)) i++;
		return i;
	}
	let depth = 0;
	for (;;) {
		const c = text[i]!;
		if (c === '"') {
			i = behind(text, i);
			continue;
		}
		if (c === "{" || c === "[") depth++;
		else if (c === "}" || c === "]") depth--;
		i++;
		if (depth === 0) return i;
	}
}

/**
 * partOf cuts a member out of a JSON object, by the names that lead to it, as it was written: numbers that a number of this language
 * does not hold, and the order of keys, stay. undefined where it is not there.
 */
export function partOf(text: string, path: readonly string[]): string | undefined {
	JSON.parse(text); // throws where it is not JSON
	let at = 0;
	const space = () => {
		while (/\s/.test(text[at] ?? "")) at++;
	};
	for (const want of path) {
		space();
		if (text[at] !== "{") return undefined;
		at++;
		for (;;) {
			space();
			if (text[at] !== '"') return undefined; // the end
			const end = behind(text, at);
			const name = JSON.parse(text.slice(at, end)) as string;
			at = end;
			space();
			at++; // the colon
			space();
			if (name === want) break;
			at = behind(text, at);
			space();
			if (text[at] === ",") at++;
		}
	}
	space();
	return text.slice(at, behind(text, at));
}
