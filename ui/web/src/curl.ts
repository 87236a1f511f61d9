/** curl writes a call as a command line. The token stays in the shell's environment. */
export function curl(method: string, path: string, body?: unknown): string {
	const parts = ["curl"];
	if (method !== "GET") parts.push(`-X ${method}`);
	parts.push('-H "Authorization: Bearer $MILLRACE_TOKEN"');
	if (body !== undefined)
		parts.push("-H 'Content-Type: application/json'", `--data-binary ${quoted(JSON.stringify(body))}`);
	parts.push(quoted(new URL(path, location.origin).href));
	return parts.join(" ");
}

/** quoted is a word of the shell that nothing in it can end. */
function quoted(text: string): string {
	return `'${text.replaceAll("'", "'\\''")}'`;
}
