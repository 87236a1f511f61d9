#!/usr/bin/env bash
# Sees that this machine has what the build needs, and says what is missing. It may be run any number of times.
#
#   scripts/setup.sh        for make build and make test: Go, git, and for tests that are skipped without them a browser and
#                           the git clients of scripts/clients.sh; where CI is set the clients must be there
#   scripts/setup.sh race   for make check as well: a C compiler, which the race detector needs
#
# Missing Debian packages are installed if this runs as root; Go is never installed, only asked for. Libraries and tools
# written in Go are pinned in go.mod and tools/go.mod, and the go command fetches them.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { # command, Debian package, what for
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"
		command -v "$1" >/dev/null && return
	fi
	echo "setup: $1 is missing ($3): install the package $2" >&2
	exit 1
}

may() { # command, Debian package, what is left out without it
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null || true
	fi
	command -v "$1" >/dev/null || echo "setup: without the package $2, $3"
}

need git git 'repositories are served by it'
may chromium chromium 'no test opens the web UI, nor the report of a measurement, in a browser'
if ! scripts/clients.sh >/dev/null; then
	if [ -n "${CI:-}" ]; then
		exit 1
	fi
	echo 'setup: without these git clients, no test drives them'
fi
may npm npm 'no reader makes TypeScript of the OpenAPI document, and the SDK of TypeScript and the web UI are left out'
may python3 python3-venv 'the SDK of Python is left out'
if [ "${1:-}" = race ]; then
	need gcc 'gcc' 'the race detector is linked by it'
	if ! printf '#include <stdlib.h>\n' | gcc -E - >/dev/null 2>&1; then
		if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
			echo 'setup: the headers of the C library are missing: install the package libc6-dev' >&2
			exit 1
		fi
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libc6-dev
	fi
fi

want=$(awk '$1 == "go" { print $2; exit }' go.mod)
if ! command -v go >/dev/null; then
	echo "setup: Go is missing: install Go $want or later, and put its bin folder on PATH" >&2
	exit 1
fi
have=$(go env GOVERSION) # as go1.26.3; with a newer toolchain than the installed one, that one
have=${have#go}
have=${have%%[!0-9.]*}
if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
	echo "setup: Go $have is too old: install Go $want or later" >&2
	exit 1
fi
echo "setup: Go $have, $(git --version)"
