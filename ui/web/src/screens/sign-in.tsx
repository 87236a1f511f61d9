import { type FormEvent, useEffect, useState } from "react";
import { Command } from "../parts/basic";
import { useSessionState } from "../session";

/** SignIn takes a token, which is exchanged for a session and forgotten. */
export function SignIn() {
	const { error, busy, signIn, retry } = useSessionState();
	const [token, setToken] = useState("");
	useEffect(() => {
		document.title = "Sign in · Millrace";
	}, []);
	const submit = (e: FormEvent) => {
		e.preventDefault();
		const value = token.trim();
		if (value === "" || busy) return;
		setToken("");
		void signIn({ token: value });
	};
	const plain = location.protocol === "http:" && !/^(localhost|127\.|\[::1\])/.test(location.host);
	return (
		<main className="sign-in">
			<h1>millrace</h1>
			<form onSubmit={submit}>
				<label className="field">
					Token
					<input
						type="password"
						value={token}
						onChange={(e) => setToken(e.target.value)}
						autoComplete="off"
						spellCheck={false}
						// biome-ignore lint/a11y/noAutofocus: it is the one thing to do on this page
						autoFocus
					/>
				</label>
				<button type="submit" className="main" disabled={busy || token.trim() === ""}>
					Sign in
				</button>
			</form>
			{error ? (
				<p className="failed" role="alert">
					{error.status === 401
						? "✕ UNAUTHENTICATED: the server has no such token, or its time is up."
						: error.code === "RATE_LIMITED"
							? "✕ RATE_LIMITED: too many attempts from this address. Wait a minute."
							: `✕ ${error.code}: ${error.message}`}
					{error.status === 0 || error.status >= 500 ? (
						<button type="button" className="plain" onClick={retry}>
							Try again
						</button>
					) : null}
				</p>
			) : null}
			<p>
				Or run <Command text="millrace ui" /> on a machine that has the token: it prints a link that signs in once.
			</p>
			<p className="dim">
				The token is not kept in this browser. The session ends 12 hours from now, or when the token does.
			</p>
			{plain ? <p className="warn">⚠ This page came over plain text: the token can be read on its way.</p> : null}
		</main>
	);
}
