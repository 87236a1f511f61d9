#!/usr/bin/env bash
# What a change must pass before it is merged: the ordinary suite and everything that takes longer. Ends with a table of
# steps and seconds, of the clock and of all processors; the steps after the first may take 8 minutes of the clock
# together, and warn at 7.
#
# MUTANT names a planted bug. Then the suite alone runs, with that bug in it, and must fail: see scripts/mutants.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
failed=0
table=""

if [ -n "${MUTANT:-}" ]; then
	TAGS=$tags exec scripts/mutants.sh "$MUTANT"
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

cpu_seconds() { # of all processes that have ended; into $cpu, because a subshell would count its own
	times >"$bin/times"
	cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum }' "$bin/times")
}

step() { # name, command...
	local name=$1 begin=$SECONDS result=pass cpu_begin
	shift
	cpu_seconds
	cpu_begin=$cpu
	echo "== $name"
	"$@" || { result=FAIL; failed=1; }
	cpu_seconds
	table+=$(printf '%-6s %5ds %6ds  %s' "$result" $((SECONDS - begin)) $((cpu - cpu_begin)) "$name")$'\n'
}

unchanged() { # generated code equals what would be generated now
	cp -R gen "$bin/gen"
	scripts/generate.sh || return 1
	diff -r "$bin/gen" gen
}

wide_lint() {
	go build -C tools/golangci -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint || return 1
	"$bin/golangci-lint" run --build-tags "$tags"
}

scripts/setup.sh race

step 'make test' env TAGS="$tags" scripts/test.sh
begin=$SECONDS
packages=$(go list -tags "$tags" ./... | grep -v -e '/test/' -e '/internal/lint$')
# shellcheck disable=SC2086 # a list of words
step 'race detector' go test -race -short -shuffle=on -tags "$tags" -timeout 10m $packages
# shellcheck disable=SC2086 # a list of words
step 'planted faults' go test -short -tags "$tags faults" -timeout 10m $packages
step 'fault rows on real processes' env CHAOS=check go test -count=1 -tags "$tags" -timeout 15m ./test/chaos
step 'planted bugs' env TAGS="$tags" scripts/mutants.sh
step 'vet of builds for tests' go vet -tags "$tags faults mutants" ./...
step 'golangci-lint' wide_lint
step 'generated code' unchanged
added=$((SECONDS - begin))

printf '\n%-6s %6s %7s  %s\n%s' '' clock cpu step "$table"
if [ "$added" -gt 480 ]; then
	echo "FAIL: the steps after make test took ${added}s, over 480s"
	failed=1
elif [ "$added" -gt 420 ]; then
	echo "WARNING: the steps after make test took ${added}s of 480s"
fi
exit "$failed"
