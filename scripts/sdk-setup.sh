#!/usr/bin/env bash
# Sets up what the SDKs of Python and TypeScript are built and tested with: .cache/py, a virtual environment, by the lock file of
# sdk/python, and sdk/typescript/node_modules, by its lock file. Nothing of the packages runs while they are installed. It may be run any
# number of times; it does nothing where the lock files have not changed.
#
#   scripts/sdk-setup.sh          what is missing (python3, npm) is said, and that language is left out
#   MILLRACE_SDK_REQUIRED=1       both must be there
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

missing() { # what
	echo "sdk-setup: $1" >&2
	[ "${MILLRACE_SDK_REQUIRED:-}" != 1 ] || failed=1
}

stamp() { sha256sum "$@" | sha256sum | cut -c 1-16; }

# Agents of tests and benches start as an installed package does, whose bytecode pip has written.
bytecode() {
	.cache/py/bin/python -m compileall -q sdk/python/src sdk/python/tests
}

python() {
	local want py
	py=$(command -v python3.11 || command -v python3 || true)
	if [ -z "$py" ] || ! "$py" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
		missing 'Python 3.10 or later with venv is missing (package python3-venv): the SDK of Python is left out'
		return
	fi
	want=$(stamp sdk/python/uv.lock sdk/python/pyproject.toml scripts/sdk-setup.sh)
	if [ "$(cat .cache/py/stamp 2>/dev/null || true)" = "$want" ]; then
		bytecode
		return
	fi
	"$py" -m venv .cache/py
	.cache/py/bin/pip install -q --disable-pip-version-check uv==0.13.9
	(cd sdk/python && VIRTUAL_ENV=$PWD/../../.cache/py UV_PYTHON_DOWNLOADS=never ../../.cache/py/bin/uv sync -q --frozen --active --inexact --compile-bytecode --all-extras --all-groups)
	bytecode
	echo "$want" >.cache/py/stamp
}

typescript() {
	local want
	if ! command -v npm >/dev/null || ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)'; then
		missing 'Node 20 or later with npm is missing: the SDK of TypeScript is left out'
		return
	fi
	want=$(stamp sdk/typescript/package-lock.json)
	[ "$(cat sdk/typescript/node_modules/.stamp 2>/dev/null || true)" != "$want" ] || return 0
	(cd sdk/typescript && npm ci --ignore-scripts --no-audit --no-fund --silent)
	echo "$want" >sdk/typescript/node_modules/.stamp
}

python
typescript
exit "$failed"
