#!/usr/bin/env bash
# What to run before each commit: messages of commits, vet, and the short tests of all packages that ship, but for those that
# scripts/long_tests.txt names. It takes a minute at most on 2 cores that do nothing else, with a warm build cache, and says how
# long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants} budget=60
status=0
SECONDS=0

scripts/commits.sh || status=1
go vet -tags "$tags" ./... || status=1
long=$(awk '/^[^#]/ { print $2 }' scripts/long_tests.txt | paste -sd '|')
# The longest begin first. There are more at once than processors: those that run whole nodes mostly wait.
go test -short -tags "$tags" -skip "^($long)\$" -p $(($(nproc) + 1)) \
	./internal/node ./sdk/go ./internal/api ./internal/gitobj ./internal/server ./internal/lint ./internal/... ./sdk/go/... || status=1

echo "quick: $SECONDS s of $budget"
[ "$SECONDS" -le "$budget" ] || echo "WARNING: quick took longer than its budget: see which packages above, and scripts/long_tests.txt"
exit "$status"
