import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type ApiError, asApiError } from "../api/errors";
import { useLiveStatus, useRows } from "./live";

interface Figures<T> {
	rows: T[] | undefined;
	error: ApiError | undefined;
	retry: () => void;
}

/** A stream that has told nothing after this many milliseconds is not waited for. */
const patience = 800;
const pollEvery = 5000;

/** useFigures shows a topic live. Where the stream tells nothing, it asks a route for the same rows, every 5 s. */
export function useFigures<T>(ns: string, topic: string, read: () => Promise<T[]>): Figures<T> {
	const live = useRows<T>(ns, topic);
	const status = useLiveStatus(ns);
	const [late, setLate] = useState(false);
	useEffect(() => {
		const t = setTimeout(() => setLate(true), patience);
		return () => clearTimeout(t);
	}, []);
	const asks = status === "failing" || (!live && late && status !== "paused");
	const query = useQuery({
		queryKey: [ns, "figures", topic],
		queryFn: read,
		enabled: asks,
		retry: false,
		refetchInterval: asks ? pollEvery : false,
	});
	const rows = status === "failing" ? (query.data ?? live) : (live ?? query.data);
	return {
		rows,
		error: !rows && query.error ? asApiError(query.error) : undefined,
		retry: () => void query.refetch(),
	};
}
