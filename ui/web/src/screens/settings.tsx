import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, call } from "../api/client";
import { clock } from "../format";
import written from "../licences.json";
import { useNow } from "../now";
import { Button, Command, Facts, Loading, Page, Panel, ReadFailed, Since, When } from "../parts/basic";
import { Confirm } from "../parts/dialog";
import { Table } from "../parts/table";
import { useSession, useSessionState } from "../session";
import { type Settings as Kept, setSettings, useSettings } from "../settings";

/** Settings shows who is signed in, what this browser keeps, and what the server is. */
export function Settings() {
	return (
		<Page title="Settings" name="Settings">
			<div className="columns">
				<You />
				<Looks />
			</div>
			<Server />
			<Licences />
		</Page>
	);
}

function You() {
	const session = useSession();
	const { signOut } = useSessionState();
	const [ending, setEnding] = useState(false);
	return (
		<Panel
			title="You"
			side={
				<span className="actions">
					<Button onClick={() => void signOut()}>Sign out</Button>
					<Button needs="cluster" kind="danger" onClick={() => setEnding(true)}>
						End all sessions…
					</Button>
				</span>
			}
		>
			<Facts
				items={[
					["token", session.principal],
					["tenant", session.tenant],
					...(session.expires_at
						? ([["the session ends", <When key="e" at={session.expires_at} />]] as [string, ReactNode][])
						: []),
					...(session.repos?.length
						? ([
								[
									"repositories",
									<span key="r" className="mono">
										{session.repos.join(" ")}
									</span>,
								],
							] as [string, ReactNode][])
						: []),
				]}
			/>
			<h3>Scopes</h3>
			<p className="mono">{session.scopes.length ? session.scopes.join("  ") : "none"}</p>
			<p className="dim">
				The token itself is not kept in this browser. What a scope allows is decided by the server; a button whose scope
				you lack is disabled and names it.
			</p>
			{ending ? (
				<Confirm
					title="End all sessions?"
					what={
						<p>Every browser that is signed in to this cluster, yours too, has to sign in again. Tokens stay valid.</p>
					}
					lost="Dialogs and searches that others have open are lost to them."
					needs="cluster"
					verb="End all sessions"
					type="all sessions"
					onClose={() => setEnding(false)}
					onConfirm={async () => {
						await call(api.POST("/v1/sessions:end"));
						await signOut();
					}}
				/>
			) : null}
		</Panel>
	);
}

/** Choice is one setting of this browser, as buttons of which one is pressed. */
function Choice<K extends "theme" | "density" | "times">({
	name,
	label,
	words,
}: {
	name: K;
	label: string;
	words: [Kept[K], string][];
}) {
	const now = useSettings()[name];
	return (
		<fieldset className="choice">
			<legend>{label}</legend>
			<span className="segments">
				{words.map(([value, word]) => (
					<button
						key={value}
						type="button"
						aria-pressed={value === now}
						onClick={() => setSettings({ [name]: value } as Partial<Kept>)}
					>
						{word}
					</button>
				))}
			</span>
		</fieldset>
	);
}

function Looks() {
	const { letters, times } = useSettings();
	const now = useNow();
	return (
		<Panel title="This browser">
			<Choice
				name="theme"
				label="Theme"
				words={[
					["system", "as the system"],
					["light", "light"],
					["dark", "dark"],
				]}
			/>
			<Choice
				name="density"
				label="Rows"
				words={[
					["dense", "dense"],
					["normal", "normal"],
					["wide", "wide"],
				]}
			/>
			<Choice
				name="times"
				label="Times"
				words={[
					["local", "of this place"],
					["utc", "UTC"],
				]}
			/>
			<p className="dim">
				The server says it is <span className="mono">{clock(now, times)}</span>
			</p>
			<label className="check">
				<input type="checkbox" checked={letters} onChange={(e) => setSettings({ letters: e.target.checked })} />
				shortcuts of single letters
			</label>
			<p className="dim">
				<kbd>?</kbd> lists them, and <kbd>⌘K</kbd> or <kbd>Ctrl K</kbd> works always. Motion, contrast and colours
				follow what the system is set to.
			</p>
		</Panel>
	);
}

function Server() {
	const session = useSession();
	const query = useQuery({ queryKey: ["status"], queryFn: () => call(api.GET("/v1/status")) });
	const s = query.data;
	return (
		<Panel title="Server">
			<ReadFailed query={query} what="The status" />
			{query.isPending ? <Loading what="the status" /> : null}
			{s ? (
				<Facts
					items={[
						["node", s.node || session.node],
						[
							"cluster",
							<span key="c" className="mono wrap">
								{session.cluster_id || "none: one node by itself"}
							</span>,
						],
						["version", s.version],
						[
							"durability",
							s.durability === "none" ? (
								<span key="d" className="warn">
									none ⚠
								</span>
							) : (
								s.durability
							),
						],
						["up", <Since key="u" at={s.started_at} />],
						["shards", s.shards],
						["services", session.services.length ? session.services.join(", ") : "all"],
						[
							"disk",
							s.disk_full ? (
								<span key="f" className="warn">
									full: writes are refused ⚠
								</span>
							) : (
								"has room"
							),
						],
					]}
				/>
			) : null}
			{s?.features?.length ? <p className="dim wrap">features: {s.features.join(", ")}</p> : null}
			<p>
				<a href="/v1/openapi.json" target="_blank" rel="noopener">
					The contract of this server, as OpenAPI
				</a>
			</p>
			<p className="dim">
				Limits and their highest values are printed by <Command text="millrace serve --limits" /> all settings by{" "}
				<Command text="millrace serve --settings" />
			</p>
		</Panel>
	);
}

function Licences() {
	const [shown, show] = useState<number>();
	return (
		<Panel title="Licences">
			<p>Millrace is under the Apache License 2.0. This page also contains:</p>
			<Table
				label="Packages that this page contains"
				columns={[
					{ id: "name", name: "package", cell: (p) => p.name },
					{ id: "version", name: "version", cell: (p) => p.version },
					{
						id: "licence",
						name: "licence",
						cell: (p) => (
							<button
								type="button"
								className="quiet"
								aria-expanded={shown === p.text}
								aria-label={`${p.licence}, the terms of ${p.name}`}
								onClick={() => show(shown === p.text ? undefined : p.text)}
							>
								{p.licence}
							</button>
						),
					},
					{ id: "holders", name: "holders", look: "wrap", cell: (p) => p.holders.join(" · ") },
				]}
				rows={written.packages}
				id={(p) => `${p.name} ${p.version}`}
			/>
			{shown === undefined ? null : (
				// biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reached by the keyboard
				<section className="bytes-body" tabIndex={0} aria-label="Terms">
					<pre>{written.texts[shown]}</pre>
				</section>
			)}
		</Panel>
	);
}
