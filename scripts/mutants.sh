#!/usr/bin/env bash
# Plants each bug that a package names, one at a time, and wants that package's tests to fail: a test that has never
# caught anything proves nothing. Packages whose bugs are chosen by MILLRACE_MUTANT are found by their build tag; those
# that plant bugs within their tests are run once, and must pass.
set -euo pipefail
cd "$(dirname "$0")/.."
tags="mutants ${TAGS:-invariants}"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
missed=0
planted=0

for file in $(grep -rlE --include='*.go' '^//go:build mutants' internal); do
	dir=$(dirname "$file")
	if ! grep -q MILLRACE_MUTANT "$file"; then
		if [ ! -e "$bin/$(echo "$dir" | tr / _)" ]; then
			touch "$bin/$(echo "$dir" | tr / _)"
			go test -short -tags "$tags" "./$dir" || missed=$((missed + 1))
			planted=$((planted + 1))
		fi
		continue
	fi
	go test -c -tags "$tags" -o "$bin/tests" "./$dir"
	for bug in $(grep -hoE 'mutant\("[a-z_]+"\)' "$dir"/*.go | cut -d '"' -f 2 | sort -u); do
		begin=$SECONDS
		planted=$((planted + 1))
		if (cd "$dir" && MILLRACE_MUTANT=$bug "$bin/tests" -test.short -test.failfast -test.timeout 60s >"$bin/log" 2>&1); then
			echo "MISSED: $dir passes with the bug $bug"
			missed=$((missed + 1))
		elif ! grep -q -e '^--- FAIL' -e '^panic:' "$bin/log"; then
			echo "INVALID: $dir did not fail in a test with the bug $bug:"
			tail -n 5 "$bin/log"
			missed=$((missed + 1))
		else
			echo "caught: $bug in $dir, $((SECONDS - begin))s"
		fi
	done
done
echo "$planted planted, $missed missed"
[ "$planted" -gt 0 ] && [ "$missed" = 0 ]
