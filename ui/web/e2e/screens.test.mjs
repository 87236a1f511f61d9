import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fill } from "./fill.mjs";
import { accessible, closeBrowser, context, open, server, settled, skip } from "./rig.mjs";

after(closeBrowser);

test("every screen is accessible in both themes, and fits a telephone", { skip, timeout: 300_000 }, async (t) => {
	const { server: s, paths } = await fill(t);
	for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
		const c = await context(t, { colorScheme });
		const page = await open(t, s, "", { context: c });
		for (const [name, path] of Object.entries(paths)) {
			await page.goto(`${s.url}/ui/${path}`);
			await settled(page);
			assert.equal(
				await page.locator(".failed").count(),
				0,
				`${name}: a part failed: ${await page.locator(".failed").allTextContents()}`,
			);
			await accessible(page, `${name}, ${colorScheme}`);
			if (colorScheme === "dark") continue;
			await page.setViewportSize({ width: 360, height: 740 });
			const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
			assert.ok(wide <= 0, `${name}: ${wide} pixels wider than a screen of 360`);
			await page.setViewportSize({ width: 1280, height: 800 });
		}
		await page.keyboard.press("?");
		await page.getByRole("dialog").waitFor();
		await accessible(page, `shortcuts, ${colorScheme}`);
	}
});

/** What people have put into queues to run in the page of an operator. */
const hostile = [
	"<script>window.hit=1</script>",
	"<img src=x onerror=window.hit=1>",
	"</title><svg onload=window.hit=1>",
	'"><iframe srcdoc="<script>parent.hit=1</script>">',
	"javascript:window.hit=1",
	"{{constructor.constructor('window.hit=1')()}}",
	"'-window.hit-'",
	'<a href="javascript:window.hit=1">x</a>',
	"\u202egnp.exe\u2066",
	"<style>*{background:url(http://example.org/)}</style>",
	'<meta http-equiv=refresh content="0;url=http://example.org/">',
	"<math><mtext></form><form><mglyph><style></math><img src onerror=window.hit=1>",
];

test("nothing that a task, a key, a worker or an error holds is run or loaded", {
	skip,
	timeout: 300_000,
}, async (t) => {
	const s = await server(t);
	/** @type {string[]} */
	const paths = [
		"default/overview",
		"default/queues",
		"default/tasks",
		"default/dead",
		"default/workers",
		"default/queues/mail",
		"default/queues/mail/errors",
		"default/kv",
		"default/kv/notes",
	];
	await s.call("PUT", "/v1/keyspaces/notes", {});
	for (const [i, text] of hostile.entries()) {
		const id = await s.create(
			"mail",
			{ text },
			{
				headers: [{ name: "note", value: text.replaceAll(/[^\x20-\x7e]/g, "?") }],
				labels: { note: text.slice(0, 120) },
			},
		);
		const a = await s.claim("mail", text.slice(0, 100));
		await s.call("POST", `/v1/tasks/${a.task?.id ?? a.id}/report`, {
			token: a.token,
			progress: { percent: 1, message: text },
			lines: [text],
		});
		if (i % 2 === 0)
			await s.call("POST", `/v1/tasks/${a.task?.id ?? a.id}/fail`, {
				token: a.token,
				fatal: true,
				error: { code: text.slice(0, 60), message: text, stack: text },
			});
		else await s.call("POST", `/v1/tasks/${a.task?.id ?? a.id}/complete`, { token: a.token, result: text });
		await s.call("PUT", `/v1/kv/notes/keys/${encodeURIComponent(text)}`, text);
		for (const tab of ["", "/payload", "/result", "/effects", "/logs", "/related"])
			if (i < 3 || tab === "") paths.push(`default/tasks/${id}${tab}`);
		paths.push(`default/kv/notes?key=${encodeURIComponent(text)}`);
	}
	const page = await open(t, s);
	page.on("dialog", (d) => assert.fail(`a dialog of the browser: ${d.message()}`));
	for (const path of paths) {
		await page.goto(`${s.url}/ui/${path}`);
		await settled(page);
		assert.equal(await page.evaluate("window.hit"), undefined, path);
	}
	assert.ok(!page.url().includes("example.org"));
});
