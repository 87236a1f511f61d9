/**
 * What a schema of Standard Schema v1 has, such as those of zod, valibot and arktype. https://standardschema.dev
 */
export interface Schema<Input = unknown, Output = Input> {
	readonly "~standard": {
		readonly version: 1;
		readonly vendor: string;
		readonly validate: (value: unknown) => Result<Output> | Promise<Result<Output>>;
		readonly types?: { readonly input: Input; readonly output: Output } | undefined;
	};
}

export type Result<Output> =
	| { readonly value: Output; readonly issues?: undefined }
	| { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

export type Validated<T> = { value: T } | { problem: string };

/** Validates a value; issues are told as one text. A promise only where the schema makes one: each costs, for each task. */
export function validate<T>(
	schema: Schema<unknown, T> | undefined,
	value: unknown,
): Validated<T> | Promise<Validated<T>> {
	if (!schema) return { value: value as T };
	const r = schema["~standard"].validate(value);
	return r instanceof Promise ? r.then(validated) : validated(r);
}

function validated<T>(r: Result<T>): Validated<T> {
	if (!r.issues) return { value: r.value };
	const problem = r.issues
		.map((i) => {
			const path = (i.path ?? []).map((p) =>
				typeof p === "object" && p !== null && "key" in p ? String(p.key) : String(p),
			);
			return path.length > 0 ? `${path.join(".")}: ${i.message}` : i.message;
		})
		.join("; ");
	return { problem };
}
