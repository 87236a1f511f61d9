// Writes src/licences.json: what the built files contain of others, with the terms that it comes under. Run it when dependencies change.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/**
 * runtime returns the places of all packages that the dependencies of package.json lead to.
 * @param {{ packages: Record<string, { dependencies?: object, peerDependencies?: object }> }} lock
 * @returns {string[]}
 */
function runtime(lock) {
	/** @type {Set<string>} */
	const found = new Set();
	/** @type {(from: string, name: string) => string | undefined} */
	const resolve = (from, name) => {
		for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf("/node_modules/")))) {
			const place = `${at ? `${at}/` : ""}node_modules/${name}`;
			if (lock.packages[place]) return place;
			if (at === "") return undefined; // an optional peer that is not there
		}
	};
	/** @type {(place: string | undefined) => void} */
	const visit = (place) => {
		const p = place && lock.packages[place];
		if (!p || found.has(place)) return;
		found.add(place);
		for (const name of Object.keys({ ...p.dependencies, ...p.peerDependencies })) {
			// Types leave nothing in the built files.
			if (!name.startsWith("@types/")) visit(resolve(place, name));
		}
	};
	for (const name of Object.keys(lock.packages[""]?.dependencies ?? {})) visit(resolve("", name));
	return [...found].sort();
}

/**
 * licences reads the terms of all packages of the runtime tree. Texts that several have in common are written once.
 * @param {URL} root
 */
export function licences(root) {
	/** @type {(file: string) => string} */
	const read = (file) => readFileSync(new URL(file, root), "utf8");
	/** @type {string[]} */
	const texts = [];
	const packages = runtime(JSON.parse(read("package-lock.json"))).map((place) => {
		const { name, version, license } = JSON.parse(read(`${place}/package.json`));
		const file = readdirSync(new URL(`${place}/`, root)).find((f) => /^licen[cs]e(\.|$)/i.test(f));
		const lines = file ? read(`${place}/${file}`).trim().split(/\r?\n/) : [];
		const holders = lines.filter((l) => /^copyright\b.*(\d{4}|\(c\))/i.test(l.trim())).map((l) => l.trim());
		const text = lines
			.filter((l) => !holders.includes(l.trim()))
			.join("\n")
			.replaceAll(/[ \t]+/g, " ")
			.replaceAll(/\n{2,}/g, "\n\n")
			.replaceAll(/([^\n])\n([^\n])/g, "$1 $2")
			.replace(/^(The )?MIT License( \(MIT\))?\n+/i, "")
			.trim();
		let at = texts.indexOf(text);
		if (at < 0) at = texts.push(text) - 1;
		return { name, version, licence: license, holders, text: at };
	});
	return { packages, texts };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
	const root = new URL("./", import.meta.url);
	writeFileSync(new URL("src/licences.json", root), `${JSON.stringify(licences(root), null, "\t")}\n`);
}
