import { useEffect, useMemo, useSyncExternalStore } from "react";
import { send, sessionHeader, withPlace } from "../api/client";
import { asApiError } from "../api/errors";
import { asFrame, type Frame, fold, Parser, type Topic } from "./frames";

// One stream per browser and namespace. The tab that holds a Web Lock reads the stream and passes its frames on over a channel; every tab
// says which topics it shows. Where the browser has no Web Locks (plain http to another host), each tab that can be seen reads for itself.

export type Status = "connecting" | "live" | "failing" | "paused";

/** Hidden tabs watch nothing after this many milliseconds. */
const hiddenAfter = 60_000;
/** A tab says this often what it wants, and is forgotten when it was silent for three times as long. */
const sayEvery = 5000;
const firstWait = 1000;
const longestWait = 60_000;

type Message =
	| { type: "want"; tab: string; topics: string[] }
	| { type: "frame"; frame: Frame }
	| { type: "state"; tab: string; frames: Frame[] }
	| { type: "status"; status: Status }
	| { type: "lead" };

class Live {
	private readonly tab = crypto.randomUUID?.() ?? String(Math.random());
	private readonly channel: BroadcastChannel;
	private readonly shown = new Map<string, number>();
	private readonly known = new Map<string, Topic>();
	private readonly listeners = new Set<() => void>();
	private readonly wants = new Map<string, { topics: string[]; at: number }>();
	private leading = false;
	private paused = false;
	private hidden = false;
	private closed = false;
	private streamed: string[] = [];
	private stream: AbortController | undefined;
	private failures = 0;
	private hideTimer: ReturnType<typeof setTimeout> | undefined;
	private retryTimer: ReturnType<typeof setTimeout> | undefined;
	private agreeTimer: ReturnType<typeof setTimeout> | undefined;
	private readonly sayTimer: ReturnType<typeof setInterval>;
	private readonly abortLock = new AbortController();
	status: Status = "connecting";

	constructor(private readonly ns: string) {
		this.channel = new BroadcastChannel(`millrace.live.${ns}`);
		this.channel.onmessage = (e: MessageEvent<Message>) => this.hear(e.data);
		this.sayTimer = setInterval(() => this.say(), sayEvery);
		document.addEventListener("visibilitychange", this.onVisibility);
		if (navigator.locks) {
			navigator.locks
				.request(`millrace.live.${ns}`, { signal: this.abortLock.signal }, () => {
					this.lead();
					return new Promise<void>((done) => this.abortLock.signal.addEventListener("abort", () => done()));
				})
				.catch(() => {});
		} else this.lead();
	}

	close(): void {
		this.shown.clear();
		this.say();
		this.closed = true;
		this.abortLock.abort();
		this.stream?.abort();
		clearInterval(this.sayTimer);
		clearTimeout(this.hideTimer);
		clearTimeout(this.retryTimer);
		clearTimeout(this.agreeTimer);
		document.removeEventListener("visibilitychange", this.onVisibility);
		this.channel.close();
	}

	/** show asks for a topic until the function that it returns is called. */
	show(topic: string): () => void {
		const n = this.shown.get(topic) ?? 0;
		this.shown.set(topic, n + 1);
		if (n === 0) this.say();
		return () => {
			const left = (this.shown.get(topic) ?? 1) - 1;
			if (left > 0) this.shown.set(topic, left);
			else {
				this.shown.delete(topic);
				// Going from page to page drops a topic and asks for it again: the channel is told once.
				setTimeout(() => !this.closed && this.say(), 0);
			}
		};
	}

	listen = (f: () => void): (() => void) => {
		this.listeners.add(f);
		return () => this.listeners.delete(f);
	};

	read(topic: string): Topic | undefined {
		return this.known.get(topic);
	}

	/** pause keeps what is shown as it is, for this tab only. */
	pause(on: boolean): void {
		this.paused = on;
		this.setStatus(on ? "paused" : "connecting");
		if (!on) this.known.clear();
		this.say();
	}

	private onVisibility = (): void => {
		clearTimeout(this.hideTimer);
		if (document.hidden) {
			this.hideTimer = setTimeout(() => {
				this.hidden = true;
				this.say();
			}, hiddenAfter);
		} else if (this.hidden) {
			this.hidden = false;
			this.known.clear(); // one whole frame, instead of what was missed
			this.say();
		}
	};

	private topics(): string[] {
		return this.paused || this.hidden ? [] : [...this.shown.keys()].sort();
	}

	private post(m: Message): void {
		if (!this.closed) this.channel.postMessage(m);
	}

	private say(): void {
		const want: Message = { type: "want", tab: this.tab, topics: this.topics() };
		this.post(want);
		this.hear(want);
	}

	private lead(): void {
		if (this.closed) return;
		this.leading = true;
		this.post({ type: "lead" } satisfies Message);
		this.say();
	}

	private hear(m: Message): void {
		switch (m.type) {
			case "want":
				if (this.leading) this.want(m.tab, m.topics);
				break;
			case "frame":
				this.take(m.frame);
				break;
			case "state":
				if (m.tab === this.tab) for (const f of m.frames) this.take(f);
				break;
			case "status":
				if (!this.paused) this.setStatus(m.status);
				break;
			case "lead":
				this.say(); // the new reader knows no tab
				break;
		}
	}

	private want(tab: string, topics: string[]): void {
		const before = this.wants.get(tab)?.topics ?? [];
		const now = Date.now();
		if (topics.length > 0) this.wants.set(tab, { topics, at: now });
		else this.wants.delete(tab);
		// A hidden tab's timers run once a minute, and it wants nothing then: what is older belongs to a tab that is gone.
		for (const [id, w] of this.wants) if (now - w.at > 3 * sayEvery && id !== this.tab) this.wants.delete(id);
		const added = topics.filter((t) => !before.includes(t) && this.known.has(t));
		if (added.length > 0 && tab !== this.tab) {
			const frames = added.map((t) => asFrame(t, this.known.get(t)!));
			this.post({ type: "state", tab, frames } satisfies Message);
			this.post({ type: "status", status: this.status } satisfies Message);
		}
		// Pages change their topics one by one.
		this.agreeTimer ??= setTimeout(() => {
			this.agreeTimer = undefined;
			this.agree();
		}, 30);
	}

	/** agree makes the stream carry what the tabs want. */
	private agree(): void {
		if (this.closed) return;
		const all = [...new Set([...this.wants.values()].flatMap((w) => w.topics))].sort();
		if (all.join() === this.streamed.join()) return;
		this.streamed = all;
		for (const topic of this.known.keys()) if (!all.includes(topic)) this.known.delete(topic);
		this.failures = 0;
		this.connect();
	}

	private connect(): void {
		clearTimeout(this.retryTimer);
		this.stream?.abort();
		this.stream = undefined;
		if (this.streamed.length === 0 || this.closed) return;
		const stop = new AbortController();
		this.stream = stop;
		this.follow(stop).catch((e) => {
			if (this.stream !== stop) return;
			this.failures++;
			this.tell("failing");
			// None of the topics is for this token: other topics are asked for at once, these again as seldom as can be.
			const refused = asApiError(e).code === "PERMISSION_DENIED";
			const most = refused ? longestWait : Math.min(longestWait, firstWait * 2 ** (this.failures - 1));
			this.retryTimer = setTimeout(() => this.connect(), most / 2 + (Math.random() * most) / 2);
		});
	}

	private async follow(stop: AbortController): Promise<void> {
		const path = `/v1/events?topics=${encodeURIComponent(this.streamed.join(","))}`;
		const response = await send(withPlace(path, this.ns), { headers: sessionHeader(), signal: stop.signal });
		if (!response.body) throw new Error("the answer has no body");
		const parser = new Parser();
		const decoder = new TextDecoder();
		const reader = response.body.getReader();
		this.tell("live");
		for (;;) {
			const { done, value } = await reader.read();
			if (done) throw new Error("the stream has ended");
			for (const event of parser.push(decoder.decode(value, { stream: true }))) {
				const frame = JSON.parse(event.data) as Frame;
				this.failures = 0;
				this.take(frame);
				this.post({ type: "frame", frame } satisfies Message);
			}
		}
	}

	private tell(status: Status): void {
		this.post({ type: "status", status } satisfies Message);
		if (!this.paused) this.setStatus(status);
	}

	private setStatus(status: Status): void {
		if (this.status === status) return;
		this.status = status;
		this.wake();
	}

	private take(frame: Frame): void {
		if (this.paused && !this.leading) return;
		const next = fold(this.known.get(frame.topic), frame);
		if (next) this.known.set(frame.topic, next);
		else if (!frame.error || !this.known.delete(frame.topic)) return;
		if (!this.paused) this.wake();
	}

	private wake(): void {
		for (const f of this.listeners) f();
	}
}

let current: { ns: string; live: Live } | undefined;

/** liveOf returns the stream of a namespace. There is one at a time. */
export function liveOf(ns: string): Live {
	if (current?.ns !== ns) {
		current?.live.close();
		current = { ns, live: new Live(ns) };
	}
	return current.live;
}

/** endLive closes the stream, as the session has ended. */
export function endLive(): void {
	current?.live.close();
	current = undefined;
}

/** useTopic shows a topic while the component is there. undefined until its first frame. */
export function useTopic(ns: string, topic: string | undefined): Topic | undefined {
	const live = liveOf(ns);
	useEffect(() => (topic ? live.show(topic) : undefined), [live, topic]);
	return useSyncExternalStore(live.listen, () => (topic ? live.read(topic) : undefined));
}

/** useRows returns the rows of a topic in the order of the server. */
export function useRows<T>(ns: string, topic: string | undefined): T[] | undefined {
	const known = useTopic(ns, topic);
	return useMemo(() => (known ? ([...known.rows.values()] as T[]) : undefined), [known]);
}

export function useLiveStatus(ns: string): Status {
	const live = liveOf(ns);
	return useSyncExternalStore(live.listen, () => live.status);
}
