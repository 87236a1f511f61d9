import { useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useAddress } from "../address";
import { many } from "../format";
import { isName } from "../names";

/** usePrefix is what the rows of a list begin with, by the address. */
export function usePrefix(): string {
	return useSearch({ strict: false }).prefix ?? "";
}

/** Newer offers to show the rows that came since, or what again says where there are none. */
export function Newer({ newer, again, onShow }: { newer: number; again?: string | undefined; onShow: () => void }) {
	const offer = newer > 0 ? `${many(newer, "newer", "newer")}, show` : again;
	return offer ? (
		<button type="button" className="quiet" onClick={onShow}>
			{offer}
		</button>
	) : null;
}

/**
 * ListHead is what stands over a list that is read again and again: what its rows begin with, further choices, and how many rows came
 * since. Rows do not move by themselves: they do when this is clicked.
 */
export function ListHead({
	of = "name",
	children,
	newer,
	again,
	onShow,
	end,
}: {
	/** What the rows begin with: a name, or a key, which may be any text. */
	of?: "name" | "key";
	children?: ReactNode;
	newer: number;
	/** Offered where nothing is newer. */
	again?: string;
	onShow: () => void;
	/** Stands behind that. */
	end?: ReactNode;
}) {
	const prefix = usePrefix();
	const set = useAddress();
	return (
		<search className="selection">
			<input
				type="search"
				aria-label={of === "name" ? "Name begins with" : "Key begins with"}
				placeholder={`${of} begins with…`}
				value={prefix}
				aria-invalid={of === "name" && prefix !== "" && !isName(prefix)}
				onChange={(e) => set({ prefix: of === "name" ? e.target.value.trim() : e.target.value })}
			/>
			{children}
			<Newer newer={newer} again={again} onShow={onShow} />
			{end}
		</search>
	);
}
