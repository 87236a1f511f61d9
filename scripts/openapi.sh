#!/usr/bin/env bash
# Has strict readers of other makers read the OpenAPI document: one of Python, and one that makes TypeScript of it, which the
# compiler must take. See test/openapi/README.md.
#
# What they need is pinned in test/openapi and installed into a cache outside of the repository; a second run finds it there.
# Debian packages that are missing are installed if this runs as root. Where a reader cannot be had, it is left out with a
# message, except where CI is set.
set -euo pipefail
cd "$(dirname "$0")/.."
pins=$PWD/test/openapi document=$PWD/gen/openapi/millrace.v1.json
cache=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/openapi

need() { # command, Debian packages
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}" >/dev/null
	fi
	command -v "$1" >/dev/null || { echo "openapi: install the packages ${*:2}" >&2; return 1; }
}

# fresh NAME FILE: whether NAME was made from what FILE says now.
fresh() { [ -d "$cache/$1" ] && cmp -s "$2" "$cache/$1.made"; }

made() { cp "$2" "$cache/$1.made"; }

python() {
	need python3 python3 || return 1
	rm -rf "$cache/python"
	if ! python3 -m venv "$cache/python" >/dev/null 2>&1; then # Debian has it in a package of its own
		[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
		python3 -m venv "$cache/python" >/dev/null || return 1
	fi
	"$cache/python/bin/pip" install -q --disable-pip-version-check -r "$pins/requirements.txt" && made python "$pins/requirements.txt"
}

node() {
	need node nodejs && need npm npm || return 1
	rm -rf "$cache/node" && mkdir -p "$cache/node" && cp "$pins/package.json" "$pins/package-lock.json" "$cache/node/" &&
		npm ci --prefix "$cache/node" --silent --no-audit --no-fund --ignore-scripts >/dev/null && made node "$pins/package-lock.json"
}

mkdir -p "$cache"
exec 9>"$cache/lock"
if command -v flock >/dev/null; then flock 9; fi # two clones may run at once
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
