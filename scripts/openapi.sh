#!/usr/bin/env bash
# Has strict readers of other makers read the OpenAPI document: one of Python, and one that makes TypeScript of it, which the
# compiler must take. See test/openapi/README.md.
#
# What they need is pinned in test/openapi and installed into a cache outside of the repository; a second run finds it there.
# Debian packages that are missing are installed if this runs as root. Where a reader cannot be had, it is left out with a
# message, except where CI is set.
set -euo pipefail
cd "$(dirname "$0")/.."
name=openapi pins=$PWD/test/openapi document=$PWD/gen/openapi/millrace.v1.json
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/openapi
. scripts/pinned.sh

node() {
	need node nodejs && need npm npm || return 1
	rm -rf "$cache/node" && mkdir -p "$cache/node" && cp "$pins/package.json" "$pins/package-lock.json" "$cache/node/" &&
		npm ci --prefix "$cache/node" --silent --no-audit --no-fund --ignore-scripts >/dev/null && made node "$pins/package-lock.json"
}

status=0
left_out() {
	echo "openapi: $1 cannot be installed: the document is not read by it" >&2
	[ -z "${CI:-}" ] || status=1
}

if fresh python "$pins/requirements.txt" || python; then
	"$cache/python/bin/python" "$pins/read.py" "$document" || status=1
else
	left_out openapi-spec-validator
fi
if fresh node "$pins/package-lock.json" || node; then
	types=$(mktemp -d)
	trap 'rm -rf "$types"' EXIT
	bin=$cache/node/node_modules/.bin
	if ! "$bin/openapi-typescript" "$document" -o "$types/millrace.ts" >"$types/log" 2>&1; then
		head -c 2000 "$types/log" >&2 # which goes on with the whole document
		status=1
	elif ! "$bin/tsc" --noEmit --strict "$types/millrace.ts" >&2; then
		status=1
	fi
else
	left_out openapi-typescript
fi
exit "$status"
