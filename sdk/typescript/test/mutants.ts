// Planted bugs, so that scenarios are seen to fail where they must. Each patches the SDK as it runs.
import { Lane } from "../src/core/lane.js";
import { Producer } from "../src/core/producer.js";
import { Renewer } from "../src/core/renewer.js";
import * as retry from "../src/core/retry.js";
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
	"settle-lost": () => {
		Lane.prototype.lose = () => {};
	},
	"no-drain": () => {
		const run = Worker.prototype.run;
		Worker.prototype.run = function (o = {}) {
			Object.assign((this as unknown as { drainMs?: number }) ?? {}, {});
			process.once("SIGTERM", () => process.kill(process.pid, "SIGTERM"));
			return run.call(this, o);
		};
	},
};

export function plant(name: string): void {
	const bug = bugs[name];
	if (!bug) throw new Error(`there is no planted bug ${name}`);
	bug();
}

void Producer;
void retry;
