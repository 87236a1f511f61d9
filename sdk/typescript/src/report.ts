import type { Client } from "./client.js";
import { placeOfId } from "./core/place.js";
import type { MillraceError, Span } from "./errors.js";
import { ReportRequest } from "./gen/millrace/v1/task.js";
import { methods } from "./methods.js";

const every = 1000;
const lineBytes = 4096;
const mostLines = 500;
const mostBytes = 64 << 10;

/** What a handler tells of its work, sent at most once a second. */
export class Reporter {
	readonly #client: Client;
	readonly #id: string;
	readonly #token: bigint;
	#number = 0n;
	#progress: { percent: number; message: string } | undefined;
	#lines: string[] = [];
	#bytes = 0;
	#dropped = 0n;
	#timer: NodeJS.Timeout | undefined;
	/** The report that was sent last, which the next one waits for. */
	#last: Promise<void> | undefined;
	#over = false;

	constructor(client: Client, id: string, token: bigint) {
		this.#client = client;
		this.#id = id;
		this.#token = token;
	}

	progress(percent: number, message: string): void {
		this.#progress = {
			percent: Math.min(Math.max(Math.round(percent), 0), 100),
			message: message.replaceAll("\0", "\ufffd").slice(0, 256),
		};
		this.#arm();
	}

	log(line: string): void {
		const text = line
			.replace(/[\r\n]+$/, "")
			.replaceAll("\0", "\ufffd")
			.slice(0, lineBytes);
		this.#lines.push(text);
		this.#bytes += Buffer.byteLength(text);
		while (this.#lines.length > mostLines || this.#bytes > mostBytes) {
			this.#bytes -= Buffer.byteLength(this.#lines.shift()!);
			this.#dropped++;
		}
		this.#arm();
	}

	#arm(): void {
		if (this.#timer || this.#over) return;
		this.#timer = setTimeout(() => {
			this.#timer = undefined;
			this.#send(undefined, 30_000).catch(() => {});
		}, every);
		this.#timer.unref();
	}

	#send(checkpoint: Buffer | undefined, timeout: Span): Promise<void> {
		const request = ReportRequest.fromPartial({
			id: this.#id,
			token: this.#token,
			number: ++this.#number,
			lines: this.#lines,
			linesDropped: this.#dropped,
		});
		if (this.#progress) request.progress = { ...this.#progress, at: undefined };
		if (checkpoint) request.checkpoint = checkpoint;
		this.#lines = [];
		this.#bytes = 0;
		this.#dropped = 0n;
		this.#progress = undefined;
		const place = (n: number): number => placeOfId(this.#id, n);
		const sent = (this.#last ?? Promise.resolve())
			.then(() => this.#client.engine.call(methods.report, request, { timeout }, place))
			.then(() => {});
		this.#last = sent.catch((e: MillraceError) => {
			if (e.code === "LEASE_LOST") this.#over = true;
		});
		return sent;
	}

	checkpoint(bytes: Buffer, timeout: Span = 30_000): Promise<void> {
		return this.#send(bytes, timeout);
	}

	/** Sends what is left, for at most five seconds, before the attempt is settled; undefined: nothing is left. */
	finish(): Promise<void> | undefined {
		clearTimeout(this.#timer);
		if (this.#progress || this.#lines.length > 0) {
			return this.#send(undefined, 5000)
				.catch(() => {})
				.finally(() => {
					this.#over = true;
				});
		}
		this.#over = true;
		return undefined;
	}
}
