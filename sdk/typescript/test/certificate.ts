// A key and a certificate for localhost and 127.0.0.1 that signs itself, made for one run of a test.
import { createPublicKey, generateKeyPairSync, sign } from "node:crypto";

function der(tag: number, ...parts: Uint8Array[]): Buffer {
	const body = Buffer.concat(parts);
	const n = body.length;
	const length = n < 128 ? [n] : n < 256 ? [0x81, n] : [0x82, n >> 8, n & 255];
	return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

const hex = (text: string): Buffer => Buffer.from(text, "hex");
const seq = (...parts: Uint8Array[]): Buffer => der(0x30, ...parts);

/** Returns both as PEM. */
export function certificate(): { key: string; cert: string } {
	const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
	const ecdsaSha256 = seq(hex("06082a8648ce3d040302"));
	const name = seq(der(0x31, seq(hex("0603550403"), der(0x0c, Buffer.from("localhost")))));
	const names = seq(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1])));
	const day = 24 * 3600 * 1000;
	const time = (ms: number): Buffer =>
		der(0x18, Buffer.from(`${new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "")}`));
	const body = seq(
		der(0xa0, hex("020102")),
		hex("020101"),
		ecdsaSha256,
		name,
		seq(time(Date.now() - day), time(Date.now() + day)),
		name,
		createPublicKey(privateKey).export({ type: "spki", format: "der" }),
		der(0xa3, seq(seq(hex("0603551d11"), der(0x04, names)))),
	);
	const signature = der(0x03, hex("00"), sign("sha256", body, privateKey));
	const text = seq(body, ecdsaSha256, signature).toString("base64").replace(/.{64}/g, "$&\n");
	return {
		key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
		cert: `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`,
	};
}
