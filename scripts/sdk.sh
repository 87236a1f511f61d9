#!/usr/bin/env bash
# Lint, types and tests of the SDKs of Python and TypeScript; each runner prints its own summary. The scenarios, which hold all languages to
# one behaviour, are tests of Go: test/sdk. Types are checked by mypy and TypeScript 7; the slower checks are in scripts/sdk-types.sh.
#
#   scripts/sdk.sh          all of it; a language that is not set up is left out, and is a failure where MILLRACE_SDK_REQUIRED is 1
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
scripts/sdk-setup.sh || status=1
if [ -z "${MILLRACE_BIN:-}" ]; then # else who calls this has built it
	mkdir -p .cache
	go build -tags "${TAGS:-invariants}" -o .cache/millrace ./cmd/millrace
	export MILLRACE_BIN=$PWD/.cache/millrace
fi
export NO_COLOR=1

python() {
	[ -x .cache/py/bin/pytest ] || return 0
	local py=$PWD/.cache/py/bin
	cd sdk/python
	"$py/ruff" format --check -q . ../../examples/python && "$py/ruff" check -q . ../../examples/python && "$py/mypy" --no-error-summary && timeout -k 10 600 "$py/pytest" -p no:cacheprovider
}

typescript() {
	[ -x sdk/typescript/node_modules/.bin/vitest ] || return 0
	cd sdk/typescript
	npx biome check . ../../examples/typescript && scripts/types.sh typescript-7 && npx tsdown --config tsdown.agent.config.ts --silent && timeout -k 10 600 npx vitest run --reporter=dot
}

# Both at once: their tests mostly wait.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
(typescript) >"$out" 2>&1 &
(python) || status=1
wait $! || status=1
cat "$out"
exit "$status"
