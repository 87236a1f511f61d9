/** Frame is one event of GET /v1/events: the rows of a topic that have changed, or all of them. */
export interface Frame {
	topic: string;
	/** When the rows were read. */
	stamp: string;
	at?: { partition: number; index: string }[];
	whole?: boolean;
	/** A leader did not answer, so that rows may be missing. */
	partial?: boolean;
	rows: Record<string, unknown>[];
	/** Ids of rows that are gone. */
	gone?: string[];
	/** The topic is of what is not there, or not for this token. The other topics of the stream go on. */
	error?: { code?: string };
}

/** Topic is what is known of a topic: its rows by id, as the frames left them. */
export interface Topic {
	stamp: string;
	at: { partition: number; index: string }[];
	partial: boolean;
	/** When its last frame came, by the clock of this browser: what was asked for after that is newer, such as after a write. */
	came: number;
	rows: ReadonlyMap<string, Record<string, unknown>>;
}

/** rowId returns the name of a row within its topic. */
export function rowId(row: Record<string, unknown>, topic = ""): string {
	// Workers of several hosts may call themselves the same.
	if (topic === "workers") return `${row["id"]}\n${row["host"] ?? ""}`;
	for (const key of ["id", "queue", "name", "kind"]) {
		const v = row[key];
		if (typeof v === "string") return v;
	}
	// A row of the topic "cluster" has one part, and is named after it.
	const part = (name: string) => row[name] as Record<string, unknown> | undefined;
	if (part("node")) return `node:${part("node")!["id"]}`;
	if (part("shard")) return `shard:${part("shard")!["shard"]}`;
	if (part("link")) return `link:${part("link")!["from"]}:${part("link")!["to"]}`;
	if (part("loss")) return `loss:${part("loss")!["node"]}`;
	if (part("cluster")) return "cluster";
	return "";
}

/** fold adds a frame to what is known of its topic. */
export function fold(known: Topic | undefined, frame: Frame): Topic | undefined {
	if (frame.error) return undefined;
	if (!known && !frame.whole) return undefined; // changes to rows that this tab never saw
	const rows = new Map(frame.whole ? [] : known?.rows);
	for (const row of frame.rows) rows.set(rowId(row, frame.topic), row);
	for (const id of frame.gone ?? []) rows.delete(id);
	return { stamp: frame.stamp, at: frame.at ?? [], partial: frame.partial ?? false, came: Date.now(), rows };
}

/** asFrame makes one whole frame of what is known, for a tab that knows nothing. */
export function asFrame(topic: string, known: Topic): Frame {
	return {
		topic,
		stamp: known.stamp,
		at: known.at,
		whole: true,
		partial: known.partial,
		rows: [...known.rows.values()],
	};
}

/** Event is one event of a stream of server-sent events. */
interface Event {
	id: string;
	data: string;
}

/** Parser cuts a stream of server-sent events into events. Comments are dropped. */
export class Parser {
	private rest = "";
	private id = "";
	private data: string[] = [];

	push(text: string): Event[] {
		const out: Event[] = [];
		const lines = (this.rest + text).split("\n");
		this.rest = lines.pop()!;
		for (const raw of lines) {
			const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
			if (line === "") {
				if (this.data.length > 0) out.push({ id: this.id, data: this.data.join("\n") });
				this.data = [];
			} else if (line.startsWith("data:")) this.data.push(line.slice(line[5] === " " ? 6 : 5));
			else if (line.startsWith("id:")) this.id = line.slice(3).trim();
		}
		return out;
	}
}
