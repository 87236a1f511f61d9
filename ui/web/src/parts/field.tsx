import { type ReactNode, useId } from "react";
import { visible } from "../format";

interface Around {
	label: ReactNode;
	/** What it may be. */
	hint?: string | undefined;
	/** What is wrong with it; it stands in place of the hint. */
	wrong?: string | undefined;
	/** It takes the room that it needs, in place of a column. */
	wide?: boolean;
}

/** Field is a field of a form with its label, and a note that says what is wrong with it, or what it may be. */
export function Field({
	label,
	hint,
	wrong,
	wide,
	children,
}: Around & {
	/** Makes the control. Its id and that of its note are given. */
	children: (id: string, note: string) => ReactNode;
}) {
	const id = useId();
	return (
		<div className={wide ? "field" : "field setting"}>
			<label htmlFor={id}>{label}</label>
			{children(id, `${id}-note`)}
			<small id={`${id}-note`} className={wrong ? "hue-dead" : "dim"}>
				{visible(wrong?.trim() || hint || "")}
			</small>
		</div>
	);
}

/** TextField is a field of one line. */
export function TextField({
	value,
	otherwise,
	list,
	decimal,
	onChange,
	...around
}: Around & {
	value: string;
	/** What holds where it is empty. */
	otherwise?: string | undefined;
	/** Id of a list of what it may be. */
	list?: string | undefined;
	/** It is a number. */
	decimal?: boolean;
	onChange: (value: string) => void;
}) {
	return (
		<Field {...around}>
			{(id, note) => (
				<input
					id={id}
					value={value}
					placeholder={otherwise}
					list={list}
					inputMode={decimal ? "decimal" : "text"}
					aria-invalid={around.wrong !== undefined}
					aria-describedby={note}
					autoComplete="off"
					spellCheck={false}
					onChange={(e) => onChange(e.target.value)}
				/>
			)}
		</Field>
	);
}
