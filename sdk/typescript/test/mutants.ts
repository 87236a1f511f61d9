// Planted bugs, so that scenarios are seen to fail where they must. Each patches the SDK as it runs.
import { Lane } from "../src/core/lane.js";
import { newId } from "../src/core/place.js";
import { Producer } from "../src/core/producer.js";
import { Producers } from "../src/core/producers.js";
import { Renewer } from "../src/core/renewer.js";
import { Worker } from "../src/worker.js";

const bugs: Record<string, () => void> = {
	"forget-held": () => {
		const hello = Lane.prototype.hello;
		Lane.prototype.hello = function () {
			return { ...hello.call(this), held: [] };
		};
	},
	"drop-settle": () => {
		const settle = Lane.prototype.settle;
		let dropped = false;
		Lane.prototype.settle = function (...args) {
			if (dropped) settle.apply(this, args);
			dropped = true;
		};
	},
	"loop-renew": () => {
		Renewer.prototype.add = () => {};
	},
	"retry-refused": () => {
		const create = Producers.prototype.create;
		Producers.prototype.create = async function (spec, o) {
			for (;;) {
				try {
					return await create.call(this, spec, o);
				} catch {
					await new Promise((r) => setTimeout(r, 50));
				}
			}
		};
	},
	"new-id": () => {
		const next = Producer.prototype.next;
		Producer.prototype.next = function (room) {
			const o = next.call(this, room);
			if (!o) return o;
			const { frame, lost } = o;
			let tasks: { id: string }[] = [];
			return {
				...o,
				frame: (seq) => {
					const f = frame(seq);
					if (f?.$case === "create") tasks = f.value.tasks;
					return f;
				},
				lost: () => {
					for (const t of tasks) t.id = newId();
					lost();
				},
			};
		};
	},
	"settle-lost": () => {
		Lane.prototype.lose = () => {};
	},
	"no-drain": () => {
		const run = Worker.prototype.run;
		Worker.prototype.run = function (o) {
			process.once("SIGTERM", () => setImmediate(() => process.emit("SIGTERM")));
			return run.call(this, o);
		};
	},
};

export function plant(name: string): void {
	const bug = bugs[name];
	if (!bug) throw new Error(`there is no planted bug ${name}`);
	bug();
}
