#!/usr/bin/env bash
# What a change must pass before it is merged: the ordinary suite and everything that takes longer. Ends with a table of
# steps and seconds; the steps after the first may take 8 minutes together, and warn at 7.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
failed=0
table=""

step() { # name, command...
	local name=$1 begin=$SECONDS result=pass
	shift
	echo "== $name"
	"$@" || { result=FAIL; failed=1; }
	table+=$(printf '%-6s %5ds  %s' "$result" $((SECONDS - begin)) "$name")$'\n'
}

unchanged() { # generated code equals what would be generated now
	local before
	before=$(mktemp -d)
	cp -R gen "$before/gen"
	scripts/generate.sh || return 1
	diff -r "$before/gen" gen || return 1
	rm -rf "$before"
}

wide_lint() {
	go build -C tools/golangci -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint || return 1
	"$bin/golangci-lint" run --build-tags "$tags"
}

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
scripts/setup.sh race

step 'make test' env TAGS="$tags" scripts/test.sh
begin=$SECONDS
packages=$(go list -tags "$tags" ./... | grep -v -e '/test/' -e '/internal/lint$')
# shellcheck disable=SC2086 # a list of words
step 'race detector' go test -race -short -tags "$tags" -timeout 10m $packages
# shellcheck disable=SC2086 # a list of words
step 'planted faults' go test -short -tags "$tags faults" -timeout 10m $packages
step 'fault rows on real processes' env CHAOS=check go test -count=1 -tags "$tags" -timeout 15m ./test/chaos
step 'planted bugs' env TAGS="$tags" scripts/mutants.sh
step 'vet of builds for tests' go vet -tags "$tags faults mutants" ./...
step 'golangci-lint' wide_lint
step 'generated code' unchanged
added=$((SECONDS - begin))

printf '\n%s' "$table"
if [ "$added" -gt 480 ]; then
	echo "FAIL: the steps after make test took ${added}s, over 480s"
	failed=1
elif [ "$added" -gt 420 ]; then
	echo "WARNING: the steps after make test took ${added}s of 480s"
fi
exit "$failed"
