#!/usr/bin/env bash
# The web UI: sets up what it is built with, and checks or builds it.
#
#   scripts/ui.sh           types of the contract and ui/dist are up to date, lint, types, unit tests, and tests in a browser against
#                           a real server. Without npm all of it is left out; where MILLRACE_SDK_REQUIRED is 1 that is a failure
#   scripts/ui.sh setup     installs what it is built with, and no more
#   scripts/ui.sh generate  writes the types of the contract and ui/dist
#   scripts/ui.sh shots     writes a screenshot of every screen, in both themes and three widths, to ui/web/shots
set -euo pipefail
cd "$(dirname "$0")/.."
export NO_COLOR=1 MILLRACE_BIN=$PWD/.cache/millrace

if ! command -v npm >/dev/null || ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)'; then
	echo 'ui: Node 20 or later with npm is missing: the web UI is neither built nor tested' >&2
	[ "${MILLRACE_SDK_REQUIRED:-}" != 1 ]
	exit
fi
cd ui/web
# It does nothing where the lock file has not changed.
want=$(sha256sum package-lock.json | cut -c 1-16)
if [ "$(cat node_modules/.stamp 2>/dev/null || true)" != "$want" ]; then
	npm ci --ignore-scripts --no-audit --no-fund --silent
	echo "$want" >node_modules/.stamp
fi
[ "${1:-}" != setup ] || exit 0

generate() { # folder: writes schema.d.ts and dist there
	npx openapi-typescript ../../gen/openapi/millrace.v1.json -o "$1/schema.d.ts" >/dev/null
	npx vite build --logLevel error --outDir "$1/dist" --emptyOutDir
}

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
case "${1:-}" in
generate)
	npx openapi-typescript ../../gen/openapi/millrace.v1.json -o src/api/schema.d.ts >/dev/null
	generate "$out"
	rm -rf ../dist && cp -R "$out/dist" ../dist
	;;
shots)
	node e2e/shots.mjs
	;;
'')
	generate "$out"
	if ! cmp "$out/schema.d.ts" src/api/schema.d.ts || ! diff -rq "$out/dist" ../dist; then
		echo 'ui: what is generated is not up to date: run scripts/ui.sh generate, and commit it with the change' >&2
		exit 1
	fi
	npx biome check .
	npx tsc --noEmit
	npx vitest run --reporter=dot
	# Three files at once: each has a browser and servers of its own, and waits for its pages most of the time. The limit is for
	# one that hangs.
	timeout -k 10 "${MILLRACE_UI_WIDE:+1}600" node --test --test-concurrency=3 e2e/
	;;
*)
	echo "ui: $1 must be setup, generate or shots" >&2
	exit 2
	;;
esac
