#!/usr/bin/env bash
# Simulates clusters under faults, one history from each seed.
#
#   SEEDS=500 [FIRST=1] scripts/sim.sh   so many seeds; the first that breaks a promise ends the run and is printed
#   SEED=0x2a scripts/sim.sh             that one again
set -euo pipefail
cd "$(dirname "$0")/.."
args=()
[ -z "${SEED:-}" ] || args+=(-v -seed "$SEED")
[ -z "${SEEDS:-}" ] || args+=(-seeds "$SEEDS")
[ -z "${FIRST:-}" ] || args+=(-first "$FIRST")
exec go test -count=1 -tags "${TAGS:-invariants}" -timeout 0 -run TestClustersKeepTheirPromisesUnderFaults ./internal/sim "${args[@]}"
