#!/usr/bin/env bash
# The ordinary suite. Tests run even if lint fails, so that one run tells all; the last line counts the tests, and the lines before
# it say what the parts and the slow packages used of their budgets (scripts/budgets.txt).
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
status=0

# Servers refuse writes when too little of the disk is free, so that tests would fail one by one and far from the reason.
# A cold run adds about 3 GiB to the cache of Go; logs that servers of tests allocate ahead take up to 7 GiB for a while.
for dir in "${TMPDIR:-/tmp}" "$(go env GOCACHE)"; do
	mkdir -p "$dir"
	free=$(df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1048576) }')
	if [ "$free" -lt 10 ]; then
		echo "make test: $dir must have 10 GiB of free disk, and has $free" >&2
		exit 1
	fi
done

part() { # name, seconds: prints what a part used, and warns if that is more than it may
	local most
	most=$(awk -v part="$1" '$1 == "clock" && $2 == part { print $3 }' scripts/budgets.txt)
	echo "$1: $2 s of $most" >&2
	[ "$2" -le "$most" ] || echo "WARNING: $1 took $2 s, over its budget of $most s" >&2
}

# All tests of real processes use this binary, built as tests are, so that each package is compiled once.
SECONDS=0
mkdir -p .cache
export MILLRACE_BIN=$PWD/.cache/millrace
# What the clients are built with is installed meanwhile, before anything walks the tree: files must not vanish under it.
(scripts/sdk-setup.sh && scripts/ui.sh setup) &
go build -tags "$tags" -o "$MILLRACE_BIN" ./cmd/millrace || status=1
wait $! || status=1
build=$SECONDS

# Together, because the tests of the clients mostly wait. Scenarios, which are tests of Go, start the agents that sdk.sh builds.
scripts/ui.sh >.cache/ui.log 2>&1 &
ui=$!
scripts/sdk.sh >.cache/sdk.log 2>&1 &
sdk=$!
TAGS=$tags scripts/lint.sh || status=1
scripts/openapi.sh || status=1
wait $sdk || status=1
cat .cache/sdk.log
wait $ui || status=1
cat .cache/ui.log
clients=$((SECONDS - build))

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/testcount" ./testcount)
export TESTCOUNT_CPU=$bin/cpu
: >"$TESTCOUNT_CPU"

{
	failed=0
	(cd tools && go test -json -shuffle=on ./testcount) &&
		(cd test/faultfs && go test -json -shuffle=on ./...) &&
		# The longest begin first, and more at once than there are processors: tests of real processes mostly wait. The
		# timeout is for one that hangs, not for a slow machine. lint.sh has vetted all packages. What runs are
		# small processes with much garbage: a collector that runs less often takes a tenth of the processors' time away.
		go test -vet=off -json -exec "env GOGC=400 $bin/testcount -run" -tags "$tags" -shuffle=on -timeout 15m -p $(($(nproc) + 1)) -parallel $((2 * $(nproc) + 1)) \
			./test/e2e ./internal/node ./test/sdk ./test/chaos ./internal/sim ./internal/lint ./bench/load ./sdk/go ./internal/gitobj ./internal/api ./... || failed=1
	part build "$build"
	part clients "$clients"
	part tests $((SECONDS - build - clients))
	exit "$failed"
} | "$bin/testcount" -cpu "$TESTCOUNT_CPU" -budgets scripts/budgets.txt || status=1
exit "$status"
