#!/usr/bin/env bash
# One piece of a campaign: ROW names the row of faults, N how many runs or operations; SEED repeats a piece, MUTANT plants
# a bug that the row must find. The counts of all pieces add up in test/chaos/results; without N this prints how far the
# row is.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
if [ -n "${MUTANT:-}" ]; then # servers are built from the same files
	go run ./test/mutants "$bin/overlay"
	export GOFLAGS="${GOFLAGS:-} -overlay=$bin/overlay/overlay.json"
fi
go build -tags "invariants${MUTANT:+ mutants}" -o "$bin/run" ./test/chaos/run
"$bin/run" -row "${ROW:-}" -n "${N:-0}" -seed "${SEED:-}" -mutant "${MUTANT:-}"
