// Messages as the JSON of REST: what is exact, what is kept as it came, and what is refused.
import { expect, it } from "vitest";
import {
	BadAnswer,
	BadRequest,
	empty,
	member,
	momentOf,
	nanosOf,
	prepare,
	read,
	spanText,
	timeText,
	write,
} from "../src/core/restjson.js";
import * as batch from "../src/gen/millrace/v1/batch.js";
import * as bulk from "../src/gen/millrace/v1/bulk.js";
import * as cron from "../src/gen/millrace/v1/cron.js";
import * as kv from "../src/gen/millrace/v1/kv.js";
import * as limiter from "../src/gen/millrace/v1/limiter.js";
import * as stream from "../src/gen/millrace/v1/stream.js";
import * as task from "../src/gen/millrace/v1/task.js";
import { methods } from "../src/gen/rest.js";

const own: Record<string, unknown> = { ...batch, ...bulk, ...cron, ...kv, ...limiter, ...stream, ...task };

it("has the messages of the generated code, field by field", () => {
	for (const { request, response } of Object.values(methods)) {
		for (const type of [request, response]) {
			const codec = own[type] as { fromPartial(of: object): Record<string, unknown> };
			const made = empty(type);
			// An optional field that is not set is there in one, and not in the other.
			for (const [key, value] of Object.entries(codec.fromPartial({})))
				expect(made[key], `${type}.${key}`).toEqual(value);
		}
	}
});

it("keeps what is a client's own byte for byte", () => {
	const json = '{ "z" : 9007199254740993, "a":1.0,"a":1e400 , "é":"\\u00e9}\\"\\\\" , "l":[[],{}] }';
	const text = `{"payload": ${json}, "result":null,"labels":{"k":"\\ud800"},"new":[{"x":"]"}],"id" : "i"}`;
	const t = read(text, "Task") as unknown as task.Task;
	expect([t.payload.toString(), t.result.toString(), t.labels.k, t.id]).toEqual([json, "null", "\ufffd", "i"]);
	expect(read('{"payload_base64":"AAH/gA=="}', "Task").payload).toEqual(Buffer.from([0, 1, 255, 128]));
	expect(member('{"a":[1, {"error":2}],"error" : {"code":"X"} }', "error")).toBe('{"code":"X"}');
	expect([member('{"error":null}', "error"), member("<html>", "error")]).toEqual([undefined, undefined]);
});

it("keeps numbers exact", () => {
	const item = task.SettleItem.fromPartial({
		id: "i",
		token: 2n ** 64n - 1n,
		outcome: { $case: "release", value: {} },
	});
	expect(write("SettleItem", { ...item })).toBe('{"id":"i","token":"18446744073709551615","release":{}}');
	const check = task.KVCheck.fromPartial({
		keyspace: "n",
		key: Buffer.from([255]),
		compare: 3,
		operand: { $case: "rev", value: 2n ** 53n + 1n },
	});
	expect(write("KVCheck", { ...check })).toBe(
		'{"keyspace":"n","key_base64":"/w==","compare":"equal","rev":"9007199254740993"}',
	);
	const text = '{"token":18446744073709551615,"lease":"1m0.5s","created_at":"2026-01-02T03:04:05.678Z"}';
	expect(read(text, "Assignment")).toMatchObject({
		token: 2n ** 64n - 1n,
		leaseMs: 60_500n,
		createdMs: 1_767_323_045_678n,
	});
	for (const bad of ['{"token":"1.0"}', '{"token":true}', '{"token":"18446744073709551616"}', '{"attempt":-1}'])
		expect(() => read(bad, "Assignment")).toThrow(BadAnswer);
});

it("reads and writes times and spans", () => {
	for (const [nanos, text] of [
		[0n, "0s"],
		[1n, "0.000000001s"],
		[90_500_000_000n, "90.5s"],
		[-1_500_000_000n, "-1.5s"],
	] as const) {
		expect(spanText({ seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) })).toBe(text);
		expect(nanosOf(text)).toBe(nanos);
	}
	expect(nanosOf("1h2m3.5s4ms5us6ns")).toBe(3_723_504_005_006n);
	expect(timeText({ seconds: -62_135_596_800n, nanos: 0 })).toBe("0001-01-01T00:00:00Z");
	expect(timeText({ seconds: 1n << 60n, nanos: 0 })).toContain("s since 1970");
	expect(momentOf("1969-12-31T23:59:59.5-00:30")).toEqual({ seconds: 1799n, nanos: 500_000_000 });
});

it.each([
	"",
	"{",
	"[]",
	"nul",
	'{"id":1}',
	'{"id":"x"',
	'{"id":"x"} x',
	'{"id":"x",}',
	'{"headers":{}}',
	'{"max_run":"1 day"}',
	'{"run_at":"yesterday"}',
	'{"attempt":NaN}',
	'{"payload_base64":"?"}',
	'{"id":"a\nb"}',
	`{"x":${"[".repeat(100_000)}}`,
])("refuses what is not the contract's: %.20s", (text) => {
	expect(() => read(text, "Task")).toThrow(BadAnswer);
});

it("makes paths of fields", () => {
	const get = prepare("KVService/Get", {
		...kv.KVGetRequest.fromPartial({ keyspace: "n", key: Buffer.from("a/\xff .:", "latin1") }),
	});
	expect([get.verb, get.path, get.query]).toEqual(["GET", "/v1/kv/n/keys/a%2F%FF%20.:", []]);
	const dots = kv.KVGetRequest.fromPartial({ keyspace: "n", key: Buffer.from("..") });
	expect(prepare("KVService/Get", { ...dots }).path).toMatch(/%2E%2E$/);
	expect(() => prepare("KVService/Get", { ...kv.KVGetRequest.fromPartial({ keyspace: "n" }) })).toThrow(BadRequest);
	expect(() => prepare("BackupService/Take", {})).toThrow("no route");
	const list = task.ListRequest.fromPartial({ queue: "q", state: task.State.READY, desc: true });
	expect(prepare("TaskService/List", { ...list }).query).toEqual([
		["queue", "q"],
		["state", "ready"],
		["order", "desc"],
	]);
});

it("names a reserved field, so that the server refuses it by its name", () => {
	const spec = task.TaskSpec.fromPartial({ queue: "q", webhook: "w", payload: Buffer.from("1") });
	expect(write("TaskSpec", { ...spec })).toBe('{"queue":"q","payload_base64":"MQ==","webhook":true}');
});
