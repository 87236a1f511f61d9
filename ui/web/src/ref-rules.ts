import type { Schemas } from "./api/client";

export type Rule = Schemas["RefRule"];

/** matches tells whether a name of a ref matches a glob: * is any text within a component, ** any text. */
export function matches(glob: string, name: string): boolean {
	const source = glob
		.split(/(\*\*|\*)/)
		.map((part) => (part === "**" ? ".*" : part === "*" ? "[^/]*" : part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&")))
		.join("");
	return new RegExp(`^${source}$`, "s").test(name);
}

/** rulesOf are the rules of a repository that a ref is under, with their numbers from 1. */
export function rulesOf(rules: readonly Rule[] | undefined, name: string): { number: number; rule: Rule }[] {
	return (rules ?? []).map((rule, i) => ({ number: i + 1, rule })).filter(({ rule }) => matches(rule.refs, name));
}

/** words say what a rule forbids. */
export function words(rule: Rule): string {
	const parts: string[] = [];
	if (rule.deny?.length) parts.push(`no ${rule.deny.join(", ")}`);
	if (rule.only && rule.only !== "any")
		parts.push(
			`only by ${{ api: "the API", push: "pushes", effects: "effects of tasks" }[rule.only]}${rule.queue ? ` of ${rule.queue}` : ""}`,
		);
	if (rule.except?.length) parts.push(`but not for ${rule.except.join(", ")}`);
	return parts.join("; ");
}

export type Move = "create" | "update" | "delete";

/**
 * objections are what the rules say about a move through the API by a principal, as far as a page can know. Whether a move is forced
 * depends on the objects, which the server has: "maybe" is refused only if it is.
 */
export function objections(
	rules: readonly Rule[] | undefined,
	name: string,
	move: Move,
	principal: string,
): { number: number; rule: Rule; sure: boolean }[] {
	const out: { number: number; rule: Rule; sure: boolean }[] = [];
	for (const { number, rule } of rulesOf(rules, name)) {
		if (rule.except?.includes(principal)) continue;
		const deny = rule.deny ?? [];
		if (deny.includes(move) || rule.only === "push" || rule.only === "effects") out.push({ number, rule, sure: true });
		else if (move === "update" && deny.includes("force")) out.push({ number, rule, sure: false });
	}
	return out;
}

/** isObject tells whether a text is the id of an object: 40 or 64 hexadecimal digits. */
export function isObject(text: string): boolean {
	return /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(text);
}
