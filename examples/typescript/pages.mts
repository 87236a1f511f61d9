// Pages: fetch a site, store each page, and add a task for each link that was not seen.
//
//     npm install millrace-sdk cheerio && npx tsx examples/typescript/pages.mts [URL]
//
// Each page is a task under its address as unique key. Its worker stores title and text under a key, counts words, and adds the links of
// the page as tasks with its own completion: a worker that is killed half-way neither loses nor doubles one. Without a URL it serves a
// small site itself.
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { load } from "cheerio";
import { Client, Fatal, job, RetryIn, Worker } from "millrace-sdk";

interface Page {
	url: string;
	depth: number;
}

const page = job<Page, { title: string; links: number }>("page", { queue: "pages", attempts: 4, lease: "1m" });
const mostDepth = 3;

const onPage = page.handle(async (t, a) => {
	const r = await fetch(a.url, { signal: AbortSignal.any([t.signal, AbortSignal.timeout(10_000)]) });
	if (r.status === 429 || r.status >= 500) throw new RetryIn("200ms", new Error(`${a.url}: status ${r.status}`));
	if (!r.ok) throw new Fatal(new Error(`${a.url}: status ${r.status}`));
	const $ = load(await r.text());
	const text = $("body").text().replace(/\s+/g, " ").trim();
	const title = $("title").text();
	const here = new URL(a.url);
	const links = new Set(
		$("a[href]")
			.map((_, e) => new URL($(e).attr("href")!, here).href.replace(/#.*/, ""))
			.get()
			.filter((href) => new URL(href).origin === here.origin && href !== a.url),
	);
	t.fx.kv("pages").put(a.url, { title, text });
	t.fx.kv("counts").add("pages", 1);
	t.fx.kv("counts").add("words", text.split(" ").length);
	// A page that was added before, by whichever page, is the task that exists.
	if (a.depth < mostDepth) for (const url of links) page.addTx(t.fx, { url, depth: a.depth + 1 }, { unique: url });
	t.log(`${title}: ${links.size} links`);
	return { title, links: links.size };
});

/** A site of pages that link to each other. The first answer of one of them is that the server is busy. */
async function sampleSite(): Promise<Server> {
	let busy = true;
	const links: Record<string, string[]> = {
		"/": ["/a", "/b"],
		"/a": ["/b", "/c"],
		"/b": ["/", "/c#part"],
		"/c": ["/a", "/gone"],
	};
	const server = createServer((request, answer) => {
		const to = links[request.url ?? "/"];
		if (!to) {
			answer.writeHead(404).end();
		} else if (request.url === "/b" && busy) {
			busy = false;
			answer.writeHead(503).end();
		} else {
			const anchors = to.map((href) => `<a href="${href}">to ${href}</a>`).join(" ");
			answer.end(
				`<html><title>Page ${request.url}</title><body><p>Some words of this page.</p>${anchors}</body></html>`,
			);
		}
	}).listen(0, "127.0.0.1");
	await once(server, "listening");
	return server;
}

const site = process.argv[2] ? undefined : await sampleSite();
const start = process.argv[2] ?? `http://127.0.0.1:${(site!.address() as AddressInfo).port}/`;
const c = new Client();
const w = new Worker(c, [onPage], { slots: 8 });
const running = w.run();
try {
	const first = await page.add(c, { url: start, depth: 0 }, { unique: start });
	console.log("first page:", (await first.wait({ timeout: "30s" })).title);
	for (;;) {
		const s = await c.queue("pages").stats();
		if (s.ready + s.scheduled + s.running === 0) {
			console.log(`${s.completed} pages stored, ${s.dead} not found`);
			break;
		}
		await new Promise((r) => setTimeout(r, 50));
	}
	for await (const { key, value } of c.kv("pages").range({ prefix: start }))
		console.log(key.toString(), value.json<{ title: string }>().title);
	console.log("words:", (await c.kv("counts").get("words"))?.text);
} finally {
	await w.stop();
	await running;
	await c.close();
	site?.close();
}
