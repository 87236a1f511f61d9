#!/usr/bin/env bash
# The ordinary suite. Tests run even if lint fails, so that one run tells all; the last line counts the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
status=0

# The ten minutes of the suite, in seconds by part. A part that grows beyond its budget takes the time from another one.
budget_lint=180 budget_openapi=30 budget_tests=390
SECONDS=0
TAGS=$tags scripts/lint.sh || status=1
lint=$SECONDS
scripts/openapi.sh || status=1
openapi=$((SECONDS - lint))

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/testcount" ./testcount)

{
	failed=0
	(cd tools && go test -json -shuffle=on ./testcount) &&
		(cd test/faultfs && go test -json -shuffle=on ./...) &&
		# The longest begin first, and more at once than there are processors: tests of real processes mostly wait. The
		# timeout is for one that hangs, not for a slow machine.
		go test -json -tags "$tags" -shuffle=on -timeout 15m -p $(($(nproc) + 1)) -parallel $((2 * $(nproc) + 1)) \
			./test/e2e ./internal/node ./bench/load ./test/chaos ./internal/lint ./internal/sim ./sdk/go ./internal/gitobj ./internal/api ./... || failed=1
	echo "lint $lint s of $budget_lint, openapi $openapi s of $budget_openapi, tests $((SECONDS - lint - openapi)) s of $budget_tests" >&2
	exit "$failed"
} | "$bin/testcount" || status=1
exit "$status"
