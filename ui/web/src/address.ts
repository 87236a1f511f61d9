import { useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Search } from "./router";

/** useAddress changes values of the address, which is the state of the page. The page before stays what "back" leads to. */
export function useAddress(): (change: { [K in keyof Search]: Search[K] | undefined }) => void {
	const navigate = useNavigate();
	return useCallback(
		(change) => void navigate({ to: ".", search: (s: object) => ({ ...s, ...change }), replace: true } as never),
		[navigate],
	);
}
