import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { noteReads } from "./api/asked";
import { ApiError } from "./api/errors";
import "./app.css";
import { keepDoubleClicks } from "./double-click";
import { router } from "./router";
import { SignIn } from "./screens/sign-in";
import { SessionProvider, useSessionState } from "./session";
import { apply } from "./settings";

const queries = new QueryClient({
	defaultOptions: {
		queries: {
			staleTime: 5000,
			// A refusal is an answer; only what had none is asked for again.
			retry: (n, e) => n < 2 && (!(e instanceof ApiError) || e.status === 0 || e.status >= 502),
			refetchOnWindowFocus: true,
		},
	},
});
noteReads(queries.getQueryCache());

function App() {
	const { session, busy } = useSessionState();
	if (session) return <RouterProvider router={router} />;
	if (busy) return <div className="loading" aria-busy="true" />;
	return <SignIn />;
}

apply();
keepDoubleClicks();
createRoot(document.getElementById("root")!).render(
	<StrictMode>
		<QueryClientProvider client={queries}>
			<SessionProvider>
				<App />
			</SessionProvider>
		</QueryClientProvider>
	</StrictMode>,
);
