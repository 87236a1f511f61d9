#!/usr/bin/env bash
# Simulates clusters under faults, one history from each seed.
#
#   SEEDS=500 [FIRST=1] [RECORD=no] scripts/sim.sh   so many seeds, on all cores; the first that breaks a promise ends the
#                                         run and is printed with what happened last. What was done is added to the campaign's
#                                         results, also when it was interrupted; FIRST is the seed after the campaign's last
#   SEEDS=500 FIRST=$((1 << 52)) RECORD=no scripts/sim.sh   clusters that are mostly busy with their members
#   SEED=0x2a [STEPS=n] [TRACE=1] scripts/sim.sh     that one again; the first n steps of it; all that happens
#   scripts/sim.sh                                   how far the campaign is
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
export GOGC=${GOGC:-400} # what a run makes is garbage soon
go test -c -tags "${TAGS:-invariants}" -o "$bin/sim" ./internal/sim

simulate() { # flags...: takes the place of the shell, so that what ends that ends it
	cd internal/sim && exec "$bin/sim" -test.timeout 0 -test.run '^TestClustersKeepTheirPromisesUnderFaults$' "$@"
}

campaign() { # flags...
	(cd internal/sim && exec "$bin/sim" -test.run '^TestAPieceOfTheCampaign$' "$@" | grep -v -e '^PASS$' -e '^ok ')
}

if [ -n "${SEED:-}" ]; then
	(simulate -test.v -seed "$SEED" -steps "${STEPS:-0}" ${TRACE:+-trace})
	exit
elif [ -z "${SEEDS:-}" ]; then
	campaign -tell
	exit
fi

first=${FIRST:-$(campaign -next)}
cores=$(getconf _NPROCESSORS_ONLN)
begin=$EPOCHSECONDS
pids=()
stop() { kill "${pids[@]}" 2>/dev/null || true; }
trap 'stop' INT TERM
for ((i = 0; i < cores && i < SEEDS; i++)); do
	simulate -first $((first + i)) -stride "$cores" -seeds $(((SEEDS - i + cores - 1) / cores)) -out "$bin/$i.jsonl" >"$bin/$i.log" 2>&1 &
	pids+=($!)
done
failed=0
for _ in "${pids[@]}"; do
	wait -n || { failed=1 && stop; }
done
trap - INT TERM
grep -h -v -e '^PASS$' -e '^FAIL$' "$bin"/*.log || true
campaign -sum "$bin" -planned "$SEEDS" -seconds $((EPOCHSECONDS - begin)) ${RECORD:+-record "$RECORD"}
exit "$failed"
