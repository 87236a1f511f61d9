// Whatever people have put into queues, keys and repositories is shown as text: nothing of it runs, loads or moves what stands beside it.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, context, narrow, open, server, settled, skip, wide, workTree } from "./rig.mjs";

after(closeBrowser);

const hit = "window.hit=1";
const away = "http://example.org/x";

/** Strings that a page must show as they are. Each would set window.hit, call another host, or change what stands beside it. */
const corpus = [
	// Markup and handlers of events
	`<script>${hit}</script>`,
	`<script src=${away}></script>`,
	`<script type=module>${hit}</script>`,
	`<SCRIPT>${hit}</SCRIPT >`,
	`<scr<script>ipt>${hit}</scr</script>ipt>`,
	`<script\n>${hit}</script\t>`,
	`<script/x>${hit}</script/x>`,
	`<img src=x onerror=${hit}>`,
	`<img src=x:x onerror="${hit}">`,
	`<img/src=x/onerror=${hit}>`,
	`<IMG SRC=x OnErRoR=${hit}>`,
	`<img src="${away}">`,
	`<img srcset="${away} 2x">`,
	`<image src=x onerror=${hit}>`,
	`<picture><source srcset=${away}><img></picture>`,
	`<body onload=${hit}>`,
	`<body background=${away}>`,
	`<div onmouseover=${hit} style="position:fixed;inset:0">`,
	`<div onclick=${hit}>click</div>`,
	`<details open ontoggle=${hit}>`,
	`<input autofocus onfocus=${hit}>`,
	`<select autofocus onfocus=${hit}>`,
	`<textarea autofocus onfocus=${hit}>`,
	`<button autofocus onfocus=${hit}>`,
	`<a href=x tabindex=1 autofocus onfocus=${hit}>`,
	`<video src=x onerror=${hit}>`,
	`<video poster=${away}>`,
	`<audio src=x onerror=${hit}>`,
	`<video><source onerror=${hit}></video>`,
	`<marquee onstart=${hit}>x</marquee>`,
	`<iframe src="javascript:parent.${hit}"></iframe>`,
	`<iframe srcdoc="<script>parent.${hit}</script>"></iframe>`,
	`<iframe src=${away}></iframe>`,
	`<object data="javascript:${hit}"></object>`,
	`<object data=${away}></object>`,
	`<embed src="javascript:${hit}">`,
	`<embed src=${away}>`,
	`<frameset onload=${hit}>`,
	`<base href=${away}>`,
	`<link rel=stylesheet href=${away}>`,
	`<link rel=prefetch href=${away}>`,
	`<link rel=preload as=script href=${away}>`,
	`<meta http-equiv=refresh content="0;url=${away}">`,
	`<meta http-equiv="Content-Security-Policy" content="script-src *">`,
	`<meta charset=utf-7>`,
	`<form action=${away}><button>go</button></form>`,
	`<form><button formaction="javascript:${hit}">go</button></form>`,
	`<isindex type=image src=1 onerror=${hit}>`,
	`<keygen autofocus onfocus=${hit}>`,
	`<x onpointerrawupdate=${hit}>`,
	`<x contenteditable onbeforeinput=${hit}>`,
	`<style>*{display:none!important}</style>`,
	`<style>@import url(${away});</style>`,
	`<style>*{background:url(${away})}</style>`,
	`<div style="background:url(${away})">`,
	`<div style="animation-name:x" onanimationstart=${hit}>`,
	`<template><script>${hit}</script></template>`,
	`<template shadowrootmode=open><script>${hit}</script></template>`,
	`<dialog open onclose=${hit}>`,
	`<button popovertarget=x onclick=${hit}>x</button><div popover id=x onbeforetoggle=${hit}>`,
	`<portal src=${away}>`,
	`<noscript><p title="</noscript><img src=x onerror=${hit}>">`,
	// SVG and MathML
	`<svg onload=${hit}>`,
	`<svg/onload=${hit}>`,
	`<svg><script>${hit}</script></svg>`,
	`<svg><script href=${away} /></svg>`,
	`<svg><animate onbegin=${hit} attributeName=x>`,
	`<svg><a xlink:href="javascript:${hit}"><text y=9>x</text></a></svg>`,
	`<svg><use href="data:image/svg+xml,<svg id=x xmlns='http://www.w3.org/2000/svg'><script>${hit}</script></svg>#x">`,
	`<svg><foreignObject><iframe src=${away}></foreignObject></svg>`,
	`<svg><image href=${away}></svg>`,
	`<svg><set attributeName=onload to=${hit}>`,
	`<math><a xlink:href="javascript:${hit}">x</a></math>`,
	`<math><mtext></form><form><mglyph><style></math><img src onerror=${hit}>`,
	`<math><mi><table><mglyph><style><!--</style><img title="--><img src=x onerror=${hit}>">`,
	// Leaving what they stand in
	`"><script>${hit}</script>`,
	`'><img src=x onerror=${hit}>`,
	`"><iframe srcdoc="<script>parent.${hit}</script>">`,
	`</title><svg onload=${hit}>`,
	`</script><script>${hit}</script>`,
	`</textarea><img src=x onerror=${hit}>`,
	`</style><img src=x onerror=${hit}>`,
	`--><img src=x onerror=${hit}>`,
	`<!--><img src=x onerror=${hit}>-->`,
	`]]><img src=x onerror=${hit}>`,
	`<![CDATA[<img src=x onerror=${hit}>]]>`,
	`" autofocus onfocus=${hit} x="`,
	`' onmouseover=${hit} '`,
	`\` onmouseover=${hit} \``,
	`'-${hit}-'`,
	`";${hit};//`,
	`\\";${hit};//`,
	`*/${hit}/*`,
	`<b>bold <i>and never closed`,
	`</div></div></main></body></html>`,
	`<table><tr><td>`,
	`<plaintext>`,
	`<xmp><img src=x onerror=${hit}>`,
	// Addresses
	`javascript:${hit}`,
	`JaVaScRiPt:${hit}`,
	`java\tscript:${hit}`,
	`\x01javascript:${hit}`,
	`javascript://%0a${hit}`,
	`vbscript:${hit}`,
	`data:text/html,<script>${hit}</script>`,
	`data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0id2luZG93LmhpdD0xIi8+`,
	`blob:http://example.org/00000000-0000-0000-0000-000000000000`,
	`//example.org/x`,
	`[x](javascript:${hit})`,
	`![x](${away})`,
	// Templates and prototypes
	`{{constructor.constructor('${hit}')()}}`,
	`\${${hit}}`,
	`#{${hit}}`,
	`<%= ${hit} %>`,
	`{"__proto__":{"hit":1}}`,
	`__proto__`,
	`constructor`,
	// Characters: direction, controls, width, other forms of brackets
	`\u202egnp.exe\u2066x`,
	`\u2067right\u2069 \u061c\u200f left`,
	`a\u200bb\u2060c\ufeffd\u00ade`,
	`\ufff9note\ufffa\ufffb`,
	`line\u2028separator\u2029paragraph`,
	`\u0085next\u009bcontrol`,
	`a\x1b[31mred\x1b[0m\x07\x08\x0c\x7f`,
	`nul\0nul`,
	`one\r\ntwo\rthree`,
	`\uff1cscript\uff1e${hit}\uff1c/script\uff1e`,
	`\u{e0041}\u{e0020}tags`,
	`${"e\u0301\u0323\u0489".repeat(40)}`,
	`\u{1f469}\u200d\u{1f469}\u200d\u{1f467}\u{1f3f4}`,
	"w".repeat(900),
	"\u0627\u0644\u0633\u0644\u0627\u0645 \u05e9\u05dc\u05d5\u05dd",
	// Bytes that are not UTF-8: lone surrogates, an overlong bracket, a cut character
	Buffer.from([0xed, 0xa0, 0xbd, 0x3c, 0x62, 0x3e, 0xed, 0xb8, 0x80]),
	Buffer.concat([Buffer.from([0xc0, 0xbc]), Buffer.from(`script>${hit}`), Buffer.from([0xc0, 0xbe])]),
	Buffer.from([0x3c, 0x73, 0x76, 0x67, 0x20, 0xff, 0xfe, 0xe2, 0x82]),
	Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(`<script>${hit}</script>`, "utf16le")]),
];

/** What must not be in a text of the page: it would be swallowed, or change the direction of what stands beside it. */
const hiddenCharacters = /(?![\t\n])[\p{Cc}\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\u{e0000}-\u{e007f}]/u;

/** @param {string | Buffer} s */
const bytes = (s) => Buffer.from(/** @type {string} */ (s));
/** @param {string | Buffer} s */
const base64 = (s) => bytes(s).toString("base64");
/** As text, for fields that take nothing else. @param {string | Buffer} s */
const text = (s) => (typeof s === "string" ? s : s.toString("utf8"));
/** The first n bytes, to a whole character. @param {string} s @param {number} n */
const cut = (s, n) => {
	let out = "";
	for (const c of s) {
		if (Buffer.byteLength(out + c) > n) break;
		out += c;
	}
	return out;
};

/** What a page shows of a text, where it shows the whole of it as text. @param {string | Buffer} s */
function shownAs(s) {
	if (typeof s !== "string") return undefined; // bytes that are not text are shown in hex
	try {
		JSON.parse(s);
		return undefined; // laid out by lines
	} catch {
		return s.replaceAll(new RegExp(hiddenCharacters, "gu"), (c) => {
			const code = /** @type {number} */ (c.codePointAt(0));
			if (code < 0x80) return String.fromCharCode(0x2400 + (code === 0x7f ? 0x21 : code));
			return c
				.split("")
				.map((u) => `\\u${u.charCodeAt(0).toString(16).padStart(4, "0")}`)
				.join("");
		});
	}
}

/** Which fields refused which strings: a name is not text. */
const refused = new Map();

/**
 * Does a write with a string, or without it where the server does not take the string there.
 * @template T @param {string} field @param {string | Buffer} s @param {(s: string) => Promise<T>} with_ @param {() => Promise<T>} without
 */
async function offer(field, s, with_, without) {
	try {
		return await with_(text(s));
	} catch (e) {
		assert.match(String(e), /: 4(00|13|31) /, `${field}: ${text(s)}`);
		refused.set(field, (refused.get(field) ?? 0) + 1);
		return without();
	}
}

/** Fills a server with the strings, and tells the addresses of the screens that show them. @param {import("./rig.mjs").Server} s @param {(string | Buffer)[]} strings */
async function plant(s, strings) {
	/** @type {{ path: string, shows?: string | undefined, each?: string }[]} */
	const screens = [];
	await s.call("PUT", "/v1/keyspaces/notes", {});
	await s.call("PUT", "/v1/collections/people", { schema: [{ name: "role", type: "keywords", gate: "role" }] });
	await s.call("POST", "/v1/repos", { name: "app" });
	const { git, remote } = workTree(s);
	git("commit", "-q", "--allow-empty", "-m", text(strings[0] ?? ""));
	const commit = git("rev-parse", "HEAD");
	git("push", "-q", remote, `${commit}:refs/heads/main`);
	for (const [i, string] of strings.entries()) {
		const t = text(string);
		const spec = {
			queue: "mail",
			kind: "mail.send",
			payload_base64: base64(string),
			content_type: i % 2 ? "text/html" : "application/json",
		};
		const make = (/** @type {Record<string, unknown>} */ more) => s.call("POST", "/v1/tasks", { ...spec, ...more });
		/** @type {Record<string, unknown>} */
		const more = {};
		await offer(
			"header",
			string,
			(v) =>
				make({ headers: [{ name: "note", value: cut(v, 2000) }], queue: "probe" }).then(() => {
					more["headers"] = [{ name: "note", value: cut(v, 2000) }];
				}),
			async () => {},
		);
		await offer(
			"label",
			string,
			(v) =>
				make({ labels: { note: cut(v, 120) }, queue: "probe" }).then(() => {
					more["labels"] = { note: cut(v, 120) };
				}),
			async () => {},
		);
		const { id } = await make(more);
		const claim = (/** @type {string} */ worker) => s.claim("mail", worker);
		const a = await offer(
			"worker",
			string,
			(v) => claim(cut(v, 100)),
			() => claim("w-1"),
		);
		assert.equal(a.id, id);
		const settle = (/** @type {string} */ how, /** @type {object} */ body) =>
			s.call("POST", `/v1/tasks/${id}/${how}`, { token: a.token, ...body });
		await offer(
			"progress",
			string,
			(v) => settle("report", { number: 1, progress: { percent: 1, message: cut(v, 200) } }),
			async () => {},
		);
		await offer(
			"line",
			string,
			(v) => settle("report", { number: 2, lines: [cut(v, 1000)] }),
			async () => {},
		);
		const ops = [
			{ kv_put: { keyspace: "notes", key_base64: base64(cut(`task ${t}`, 1000)), value_base64: base64(string) } },
			{ vector_upsert: { collection: "people", point: { id: `p${i}`, payload: { text: t, note: t, role: ["r"] } } } },
		];
		const ref = {
			ref_transaction: {
				repo: "app",
				message: cut(t, 200),
				changes: [{ kind: "create", name: `refs/heads/${cut(t, 150)}`, new: commit }],
			},
		};
		const result = { result_base64: base64(string), result_type: "text/html" };
		await offer(
			"ref",
			string,
			() => settle("complete", { ...result, effects: { ops: [...ops, ref] } }),
			() => settle("complete", { ...result, effects: { ops: ops.slice(0, 1) } }),
		);
		const whole = shownAs(string);
		const task = `default/tasks/${id}`;
		screens.push(
			{ path: task },
			{ path: `${task}/payload`, shows: whole },
			{ path: `${task}/result`, shows: whole },
			{ path: `${task}/effects`, shows: "all of it, or nothing" },
			{ path: `${task}/logs` },
		);
		// Another one fails: a few errors a queue, so that all rows of its list are in the document.
		const queue = `dead-${i % 8}`;
		const failed = await s.create(queue, 1);
		const b = await s.claim(queue);
		const fail = (/** @type {object} */ error) =>
			s.call("POST", `/v1/tasks/${failed}/fail`, { token: b.token, fatal: true, error });
		await offer(
			"error",
			string,
			(v) =>
				fail({ code: cut(v, 60), message: v, stack: v }).then(() => {
					screens.push({ path: `default/tasks/${failed}`, shows: whole });
				}),
			() => fail({ code: "X", message: "x" }),
		);
		const key = cut(t, 1000);
		await s.call("POST", "/v1/commit", {
			ops: [{ kv_put: { keyspace: "notes", key_base64: base64(key), value_base64: base64(string) } }],
		});
		const named = [...Buffer.from(key)].map((b) => `%${b.toString(16).padStart(2, "0")}`).join("");
		// A key in an address is text with \xNN; a page that is given anything must not break either.
		screens.push({ path: `default/kv/notes?key=${named}` });
		if (typeof string === "string") {
			const escaped = cut(t, 1000).replaceAll("\\", "\\\\");
			screens.push({ path: `default/kv/notes?key=${encodeURIComponent(escaped)}`, shows: whole });
		}
		const q = encodeURIComponent(t);
		screens.push({
			path:
				[
					`default/tasks?q=${q}`,
					`default/tasks/${q}`,
					`default/queues/${q}`,
					`default/repos/app?ref=${q}`,
					`default/kv/${q}?prefix=${q}`,
					`default/search?collection=people&text=${q}`,
					`default/dead?queue=${q}&kind=${q}`,
					`${encodeURIComponent(t.replaceAll("/", "") || "x")}/overview`,
					`default/bulk/${q}`,
					`default/workers?q=${q}`,
					`default/limits/${q}?prefix=${q}`,
					`default/batches/${q}`,
				][i % 12] ?? "",
		});
	}
	// What there are few of has the worst of each kind: markup, and a character that turns what follows.
	for (const [i, odd] of [
		"<img src=x onerror=window.hit=1>\u202e",
		"\u2067</script><svg onload=window.hit=1>",
	].entries()) {
		await s.create(`odd-${i}`, 1);
		await s.call("POST", `/v1/queues/odd-${i}:pause`, { reason: odd });
		await s.call("PUT", `/v1/rulesets/safety-${i}`, {
			collection: "people",
			rules: [{ id: "never", when: `"${odd}" in role`, severity: "conditional", reason: odd }],
		});
		const job = await s.call("POST", "/v1/bulk", {
			action: "cancel",
			filter: { queue: `odd-${i}`, state: "ready" },
			reason: odd,
		});
		const of = (await s.call("GET", `/v1/tasks?queue=odd-${i}&limit=1`)).tasks[0].id;
		await s.create(`odd-keys-${i}`, 1, { key: odd });
		await s.call("POST", `/v1/queues/odd-keys-${i}/keys/${encodeURIComponent(odd)}:pause`, { reason: odd });
		await s.call("PUT", `/v1/crons/odd-${i}`, {
			schedule: "@yearly",
			template: {
				queue: `odd-${i}`,
				key: odd,
				payload: { odd },
				labels: { odd },
				headers: [{ name: "odd", value: odd }],
			},
		});
		await s.call("POST", `/v1/crons/odd-${i}:trigger`, {});
		const { id: batch } = (
			await s.call("POST", "/v1/batches", {
				labels: { odd },
				on_done: { queue: `odd-${i}`, labels: { odd }, payload: { odd } },
			})
		).batch;
		await s.create(`odd-${i}`, { odd }, { batch, delay: "1h", labels: { odd } });
		await s.call("POST", `/v1/batches/${batch}:cancel`, { reason: odd });
		screens.push(
			{ path: `default/batches/${batch}`, shows: shownAs(odd) },
			{ path: `default/queues/odd-keys-${i}/limits`, shows: shownAs(odd) },
			{ path: `default/crons/odd-${i}`, shows: shownAs(odd) },
			{ path: `default/queues/odd-${i}` },
			{ path: `default/bulk/${job.id ?? job.job?.id}` },
			{ path: `default/tasks/${of}` },
			{ path: `default/search?collection=people&text=img&ruleset=safety-${i}@1` },
		);
	}
	for (let i = 0; i < 8; i++)
		screens.push(
			{ path: `default/dead?queue=dead-${i}&span=all`, each: "Errors" },
			{ path: `default/tasks?q=queue:dead-${i}`, each: "Tasks" },
			{ path: `default/queues/dead-${i}/errors` },
		);
	for (const path of [
		"overview",
		"queues",
		"queues/mail",
		"queues/mail/settings",
		"queues/mail/history",
		"tasks",
		"dead",
		"dead?group=kind",
		"bulk",
		"workers",
		"crons",
		"limits",
		"batches",
		"kv",
		"kv/notes",
		"kv/notes?view=hex",
		"repos",
		"repos/app",
		"repos/app/activity",
		"repos/app/rules",
		"search?collection=people&text=img",
	])
		screens.push({ path: `default/${path}` });
	for (const path of ["cluster", "settings"]) screens.push({ path });
	return screens;
}

/** Opens an address within the page, as a link does. @param {import("playwright-core").Page} page @param {string} path */
async function go(page, path) {
	await page.evaluate((p) => history.pushState(null, "", p), `/ui/${path}`);
	await page.waitForFunction(() => {
		const main = document.querySelector("main");
		return !!main?.querySelector("h1") && !document.querySelector("[aria-busy=true]");
	});
}

test("hostile strings are text on every screen: nothing runs, loads, or hides", {
	skip,
	timeout: 900_000,
}, async (t) => {
	// Bytes that are not UTF-8 and controls are in the short run too.
	const strings = wide
		? corpus
		: corpus.filter((_, i) => i % 23 === 0 || i > corpus.length - 3 || i === corpus.length - 17);
	assert.ok(corpus.length >= 120);
	const s = await server(t, "--ui-label", "<img src=x onerror=window.hit=1>,#7a4b00");
	const screens = await plant(s, strings);
	const c = await context(t);
	await c.addInitScript(watchPolicy);
	const page = await open(t, s, "", { context: c, allowed: [400, 403, 404, 405, 414, 422, 431] });
	page.on("dialog", (d) => assert.fail(`a dialog of the browser: ${d.message()}`));
	/** @type {string[]} */
	const faults = [];
	for (const { path, shows, each } of screens) {
		const wrong = (/** @type {string} */ what) => faults.push(`${path}: ${what}`);
		await go(page, path);
		if (shows !== undefined)
			await page
				.waitForFunction((w) => document.querySelector("main")?.textContent?.includes(w), shows, { timeout: 20_000 })
				.catch(() => wrong("it does not show what is stored"));
		await look(page, s, wrong);
		if (!each) continue;
		const rows = page.getByRole("table", { name: each }).locator("tbody tr[data-index]");
		for (let i = await rows.count(); i > 0 && i > (wide ? 0 : 100); i--) {
			await page.keyboard.press("j");
			await page.keyboard.press("e");
			await settled(page);
			await look(page, s, wrong);
		}
	}
	assert.deepEqual(faults, []);
	t.diagnostic(
		`${strings.length} strings, ${screens.length} screens; refused: ${JSON.stringify(Object.fromEntries(refused))}`,
	);
});

/** Judges what a page shows by now. @param {import("playwright-core").Page} page @param {import("./rig.mjs").Server} s @param {(what: string) => unknown} wrong */
async function look(page, s, wrong) {
	const state = await page.evaluate(() => {
		const w = /** @type {any} */ (window);
		const body = /** @type {HTMLElement} */ (document.body.cloneNode(true));
		// Behind a field: the same text without colour, which only carries a mark.
		for (const e of body.querySelectorAll(".mirror")) e.remove();
		const shown = [document.title, body.textContent ?? ""];
		for (const e of document.querySelectorAll("[title],[aria-label]"))
			shown.push(e.getAttribute("title") ?? "", e.getAttribute("aria-label") ?? "");
		return {
			hit: w.hit ?? /** @type {any} */ ({}).hit,
			violated: w.violated,
			made: document.querySelectorAll(
				"main script, main iframe, main object, main style, main form[action], main img:not([src^='blob:'])",
			).length,
			href: location.href,
			shown: shown.join("\n"),
			links: [...document.querySelectorAll("a[href]")].map((a) => /** @type {HTMLAnchorElement} */ (a).href),
		};
	});
	if (state.hit !== undefined) wrong("a script ran");
	if (state.violated !== undefined) wrong(`the policy was needed: ${state.violated}`);
	if (state.made > 0) wrong("markup came into being");
	if (!state.href.startsWith(`${s.url}/ui/`)) wrong(`it led to ${state.href}`);
	for (const href of state.links) if (!href.startsWith(`${s.url}/`)) wrong(`it has a link to ${href}`);
	const hidden = hiddenCharacters.exec(state.shown);
	if (hidden) {
		const about = state.shown.slice(Math.max(0, hidden.index - 60), hidden.index + 20);
		wrong(`a character hides, or turns what stands beside it: ${JSON.stringify(about)}`);
	}
}

test("the look at a page finds what is planted in it", { skip }, async (t) => {
	const s = await server(t);
	const c = await context(t);
	await c.addInitScript(watchPolicy);
	const page = await c.newPage();
	await page.goto(await s.link());
	await settled(page);
	/** @type {string[]} */
	let found = [];
	const looked = async () => {
		found = [];
		await look(page, s, (what) => found.push(what.replace(/:.*/s, "")));
		return found;
	};
	assert.deepEqual(await looked(), []);
	await page.evaluate(() => {
		const main = /** @type {HTMLElement} */ (document.querySelector("main"));
		const p = document.createElement("p");
		p.textContent = "a\u202eb";
		const a = document.createElement("a");
		a.href = "http://example.org/";
		main.append(p, a, document.createElement("iframe"));
	});
	assert.deepEqual(await looked(), [
		"markup came into being",
		"it has a link to http",
		"a character hides, or turns what stands beside it",
	]);
	// The policy stops what gets past the page: a sink, a script in the document, an image of another host.
	for (const plant of [
		() => {
			document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=window.hit=1>");
		},
		() => {
			const b = document.createElement("b");
			b.setAttribute("onclick", "window.hit=1");
			document.body.append(b);
			b.click();
		},
		() => {
			document.body.append(Object.assign(document.createElement("img"), { src: "http://example.org/x" }));
		},
		() => {
			const style = document.createElement("style");
			style.textContent = "main{display:none}";
			document.body.append(style);
		},
	]) {
		await page.reload();
		await settled(page);
		await page.evaluate(plant).catch((e) => assert.match(String(e), /Trusted/)); // what is refused may throw
		await page.waitForFunction("window.violated !== undefined");
		assert.ok((await looked()).includes("the policy was needed"));
		assert.equal(await page.evaluate("window.hit"), undefined);
	}
});

/** Notes what the policy of a page refuses. It runs in each document before the page's own scripts. */
function watchPolicy() {
	document.addEventListener("securitypolicyviolation", (e) => {
		/** @type {any} */ (window).violated = `${e.violatedDirective} ${e.blockedURI}`;
	});
}

test("raw routes that are opened by hand are saved, and never shown as a page", {
	skip,
	timeout: 120_000,
}, async (t) => {
	const s = await server(t);
	const html = `<script>${hit}</script><img src=${away}>`;
	await s.call("PUT", "/v1/kv/notes/keys/page.html", html);
	const { id } = await s.call("POST", "/v1/tasks", {
		queue: "mail",
		payload_base64: base64(html),
		content_type: "text/html",
	});
	const a = await s.claim("mail");
	await s.call("POST", `/v1/tasks/${id}/complete`, {
		token: a.token,
		result_base64: base64(html),
		result_type: "image/svg+xml",
	});
	await s.call("POST", "/v1/repos", { name: "app" });
	const routes = [`/v1/tasks/${id}/payload`, `/v1/tasks/${id}/output`, "/v1/kv/notes/keys/page.html"];
	const authorization = { Authorization: `Bearer ${s.token}` };
	// A browser that is signed in and navigates there has no right: the cookie does not count by itself.
	const signed = await open(t, s, "", { allowed: [401] });
	for (const path of routes) {
		const answer = await signed.goto(s.url + path);
		assert.equal(answer?.status(), 401, path);
		assert.equal(await signed.evaluate("window.hit"), undefined);
	}
	// And where the right is given to it by other means, nothing is shown.
	const c = await context(t, { extraHTTPHeaders: authorization, acceptDownloads: true });
	for (const path of routes) {
		const { headers } = await fetch(s.url + path, { headers: authorization });
		assert.match(headers.get("Content-Disposition") ?? "", /^attachment/, path);
		assert.equal(headers.get("X-Content-Type-Options"), "nosniff", path);
		assert.equal(headers.get("Content-Type"), "application/octet-stream", path);
		assert.match(headers.get("Content-Security-Policy") ?? "", /default-src 'none'; sandbox/, path);
		const page = await c.newPage();
		const saved = page.waitForEvent("download");
		await page.goto(s.url + path).catch((e) => assert.match(String(e), /Download is starting|ERR_ABORTED/));
		const from = await (await saved).createReadStream();
		const got = [];
		for await (const part of from) got.push(part);
		assert.equal(Buffer.concat(got).toString(), html, path);
		assert.equal(page.url(), "about:blank", path);
		// Neither does it run as a script of a page of the same origin that has no policy.
		await page.route("**/bare", (r) => r.fulfill({ contentType: "text/html", body: "<!doctype html>" }));
		await page.goto(`${s.url}/bare`);
		const ran = await page.evaluate(async (url) => {
			const script = document.createElement("script");
			script.src = url;
			const ended = new Promise((done) => {
				script.onload = () => done("load");
				script.onerror = () => done("error");
			});
			document.documentElement.append(script);
			return [await ended, /** @type {any} */ (window).hit];
		}, s.url + path);
		assert.deepEqual(ran, ["error", undefined], path);
		await page.close();
	}
});

/** What must come through byte for byte. */
const exact = /** @type {Record<string, Buffer>} */ ({
	numbers: Buffer.from('{"big":9007199254740993,"zero":-0,"huge":1e400,"exact":1.0,"b":1,"a":2,"b":3}'),
	text: Buffer.from("one\ntwo\r\n\tthree \u00e4 \u{1f469}\u200d\u{1f467}"),
	nul: Buffer.from("a\0b\x01\x7f"),
	"not UTF-8": Buffer.from([0x22, 0xff, 0xfe, 0xed, 0xa0, 0x80, 0x22]),
	"1 MiB": Buffer.from(`"yz${"x\u00e4".repeat(349_524)}"`),
});

test("payloads, results and values are shown and saved as the bytes that they are", {
	skip: skip || narrow,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	/** @type {{ path: string, region: string, bytes: Buffer, what: string }[]} */
	const places = [];
	for (const [name, b] of Object.entries(exact)) {
		const as = { payload_base64: b.toString("base64"), content_type: "application/json" };
		const { id } = await s.call("POST", "/v1/tasks", { queue: "mail", ...as });
		const a = await s.claim("mail");
		assert.equal(a.id, id);
		await s.call("POST", `/v1/tasks/${id}/complete`, {
			token: a.token,
			result_base64: b.toString("base64"),
			result_type: "application/json",
		});
		await s.call("PUT", `/v1/kv/notes/keys/${encodeURIComponent(name)}`, b);
		const end = id.slice(-6);
		places.push(
			{ path: `tasks/${id}/payload`, region: `payload ${end}`, bytes: b, what: `payload, ${name}` },
			{ path: `tasks/${id}/result`, region: `result ${end}`, bytes: b, what: `result, ${name}` },
			{
				path: `kv/notes?key=${encodeURIComponent(name)}`,
				region: `Value of ${name}`,
				bytes: b,
				what: `value, ${name}`,
			},
		);
	}
	const page = await open(t, s);
	for (const { path, region, bytes: b, what } of places) {
		await go(page, `default/${path}`);
		const shown = page.getByRole("region", { name: region, exact: true }).locator("pre");
		await shown.waitFor();
		const views = page.getByRole("group", { name: `View of ${region}` });
		const saved = page.waitForEvent("download");
		await page
			.getByRole("button", { name: "save", exact: true })
			.or(page.getByRole("button", { name: "Save", exact: true }))
			.first()
			.click();
		const parts = [];
		for await (const part of await (await saved).createReadStream()) parts.push(part);
		assert.ok(Buffer.concat(parts).equals(b), `${what}: what is saved is another thing`);
		let utf8 = "";
		try {
			utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(b);
		} catch {
			assert.ok(await views.getByRole("button", { name: "text" }).isDisabled(), `${what}: it is not text`);
		}
		if (utf8) {
			await views.getByRole("button", { name: "text" }).click();
			const text = (await shown.textContent()) ?? "";
			const whole = shownAs(utf8) ?? utf8;
			if (text.length < whole.length) {
				assert.ok(whole.startsWith(text) && Buffer.byteLength(text) > 65_500, `${what}: it shows another beginning`);
				await page.getByText("the first 64 KiB are shown").waitFor();
			} else assert.equal(text, whole, what);
		}
		await views.getByRole("button", { name: "hex" }).click();
		const hex = ((await shown.textContent()) ?? "")
			.split("\n")
			.map((l) => l.slice(8, 55).replaceAll(" ", ""))
			.join("");
		assert.ok(b.toString("hex").startsWith(hex) && hex.length >= Math.min(b.length, 16_384) * 2, `${what}: in hex`);
		if (!what.endsWith("numbers")) continue;
		await views.getByRole("button", { name: "JSON" }).click();
		const words = ((await shown.textContent()) ?? "").replaceAll(/\s/g, "");
		assert.equal(words, utf8, `${what}: laid out, its own characters stay`);
	}
});
