import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, context, open, server, skip, tab } from "./rig.mjs";

after(closeBrowser);

test("a link signs in once, and nothing secret stays where scripts find it", { skip }, async (t) => {
	const s = await server(t);
	const link = await s.link();
	const c = await context(t);
	const page = await tab(t, c, [401]);
	await page.goto(link);
	await page.getByRole("heading", { name: "Overview" }).waitFor();
	assert.equal(new URL(page.url()).hash, "");
	const kept = await page.evaluate(() =>
		JSON.stringify([
			document.cookie,
			{ ...localStorage },
			{ ...sessionStorage },
			document.documentElement.outerHTML,
			location.href,
		]),
	);
	const cookies = await c.cookies();
	assert.equal(cookies.length, 1);
	assert.ok(cookies[0]?.httpOnly && cookies[0].sameSite === "Strict");
	for (const secret of [s.token, cookies[0].value, link.split("=")[1] ?? "?"])
		assert.ok(!kept.includes(secret), "a secret is within reach of scripts");
	assert.equal(await page.evaluate(() => document.cookie), "");

	await page.reload();
	await page.getByRole("heading", { name: "Overview" }).waitFor();

	const other = await tab(t, await context(t), [401]);
	await other.goto(link);
	await other.getByRole("alert").waitFor();
	assert.match(await other.getByRole("alert").innerText(), /UNAUTHENTICATED/);
});

test("a token signs in, a wrong one does not, and signing out ends the session", { skip }, async (t) => {
	const s = await server(t);
	const page = await tab(t, await context(t), [401]);
	await page.goto(`${s.url}/`);
	assert.equal(new URL(page.url()).pathname, "/ui/");
	await page.getByLabel("Token").fill("mr_wrong");
	await page.getByRole("button", { name: "Sign in" }).click();
	await page.getByRole("alert").waitFor();
	await page.getByLabel("Token").fill(s.token);
	await page.getByRole("button", { name: "Sign in" }).click();
	await page.getByRole("heading", { name: "Overview" }).waitFor();
	await page.getByRole("button", { name: / of / }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await page.getByLabel("Token").waitFor();
	await page.reload();
	await page.getByLabel("Token").waitFor();
	// A link in the tab that shows the sign-in already.
	await page.goto(await s.link());
	await page.getByRole("heading", { name: "Overview" }).waitFor();
	assert.equal(new URL(page.url()).hash, "");
});

test("each script is read once, and the first screen takes few requests", { skip }, async (t) => {
	const s = await server(t);
	const c = await context(t);
	const page = await tab(t, c);
	/** @type {import("playwright-core").Request[]} */
	const requests = [];
	const paths = (/** @type {import("playwright-core").Request[]} */ list) => list.map((r) => new URL(r.url()).pathname);
	const link = await s.link();
	page.on("request", (r) => requests.push(r));
	// The page itself tells what it had asked for by then: times that the browser's processes tell do not compare under load.
	await page.addInitScript(() => {
		/** @type {string[] | undefined} */
		let asked = [];
		const fetch = window.fetch;
		window.fetch = (...args) => {
			asked?.push(args[0] instanceof Request ? args[0].url : String(args[0]));
			return fetch(...args);
		};
		new MutationObserver((_, o) => {
			if (!document.querySelector(".facts")) return;
			o.disconnect();
			document.documentElement.dataset["shown"] = JSON.stringify([performance.now(), ...(asked ?? [])]);
			asked = undefined;
		}).observe(document, { childList: true, subtree: true });
	});
	await page.goto(link);
	await page.getByText("Nothing needs you.").first().waitFor();
	const [shown, ...asked] = JSON.parse((await page.locator("html").getAttribute("data-shown")) ?? "[]");
	// Scripts and styles are told once they are there, so after the chart is.
	await page.locator(".plot canvas").first().waitFor();
	const parts = await page.evaluate(
		(shown) =>
			performance
				.getEntriesByType("resource")
				.filter((e) => e.startTime < shown && /** @type {PerformanceResourceTiming} */ (e).initiatorType !== "fetch")
				.map((e) => e.name)
				// The browser asks for an icon by itself, as often as it likes.
				.filter((name) => !name.endsWith("/favicon.ico")),
		shown,
	);
	const until = [link, ...parts, ...asked].map((u) => new URL(u, s.url).pathname);
	t.diagnostic(`until the first screen is shown: ${until.join(", ")}`);
	assert.ok(until.includes("/v1/session") && until.includes("/v1/events"), until.join(", "));
	assert.ok(until.length <= 6, `${until.length} requests until the first screen is shown: ${until.join(", ")}`);
	assert.ok(requests.length <= 8, `with the chart: ${paths(requests).join(", ")}`);
	assert.ok(!paths(requests).includes("/v1/namespaces"), "namespaces are read when their menu is near");
	await page.getByRole("button", { name: "Namespace default" }).click();
	await page.getByRole("menuitem", { name: "default" }).waitFor();
	await page.goto(`${s.url}/ui/default/queues`);
	await page.getByRole("heading", { level: 1 }).waitFor();
	const urls = paths(requests);
	assert.equal(urls.filter((u) => u === "/ui/app.js").length, 2, "once for each of the two pages that were opened");
	assert.equal(urls.filter((u) => u === "/ui/pages.js").length, 1);
});

test("letters lead from place to place, and do nothing in a field", { skip }, async (t) => {
	const s = await server(t);
	const page = await open(t, s);
	await page.keyboard.press("g");
	await page.keyboard.press("q");
	await page.getByRole("heading", { level: 1, name: /Queues/ }).waitFor();
	await page.keyboard.press("ControlOrMeta+k");
	await page.getByRole("combobox", { name: "Queue, place, or id of a task" }).fill("gq?");
	assert.match(page.url(), /queues$/);
	await page.getByRole("combobox", { name: "Queue, place, or id of a task" }).fill("work");
	await page.keyboard.press("Enter");
	await page.getByRole("heading", { level: 1, name: /Workers/ }).waitFor();
});
