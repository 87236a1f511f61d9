import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { api, call } from "./api/client";

/** useNamespace is the namespace of the address, or the one that was shown last. */
export function useNamespace(): string {
	const { ns } = useParams({ strict: false }) as { ns?: string };
	return ns ?? lastNamespace();
}

const key = "millrace.namespace";

export function lastNamespace(): string {
	try {
		return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? "default";
	} catch {
		return "default";
	}
}

export function keepNamespace(ns: string): void {
	try {
		sessionStorage.setItem(key, ns);
		localStorage.setItem(key, ns);
	} catch {
		// Storage is off: a new tab begins in "default".
	}
}

/** useNamespaces are the names of the namespaces that the session may see. They are read once they are asked for. */
export function useNamespaces(on: boolean): string[] {
	const query = useQuery({
		queryKey: ["namespaces"],
		enabled: on,
		staleTime: 60_000,
		queryFn: () => call(api.GET("/v1/namespaces")),
	});
	return (query.data?.namespaces ?? []).map((n) => n.name);
}
