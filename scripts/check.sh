#!/usr/bin/env bash
# What a change must pass before it is merged: the ordinary suite and everything that takes longer. Ends with a table of
# steps and seconds, of the clock and of all processors; the steps after the first may take 20 minutes of the clock
# together, and warn at 18.
#
# MUTANT names a planted bug. Then the suite alone runs, with that bug in it, and must fail: see scripts/mutants.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
failed=0
table=""
export MILLRACE_UI_WIDE=1 # also the tests in a browser that take long

if [ -n "${MUTANT:-}" ]; then
	TAGS=$tags exec scripts/mutants.sh "$MUTANT"
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

measured() { # name, command...: runs it, and writes the step's row of the table to a file of that name; 75 is a skip
	local begin=$SECONDS result=pass cpu
	echo "== $1"
	("${@:2}" && status=0 || status=$?; times >"$bin/$1.times"; exit "$status") || { [ $? = 75 ] && result=skip || result=FAIL; }
	cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum }' "$bin/$1.times")
	printf '%-6s %5ds %6ds  %s\n' "$result" $((SECONDS - begin)) "$cpu" "$1" >"$bin/$1.row"
	[ "$result" != FAIL ]
}

row() { # name: adds its row to the table
	table+=$(cat "$bin/$1.row")$'\n'
}

step() { # name, command...
	measured "$@" || failed=1
	row "$1"
}

unchanged() { # generated code equals what would be generated now
	cp -R gen "$bin/gen"
	cp sdk/python/src/millrace_sdk/_core/{contract.binpb,rest.json} "$bin/"
	cp -R sdk/typescript/src/gen "$bin/typescript"
	cp -R ui/dist "$bin/dist"
	cp NOTICE "$bin/NOTICE"
	scripts/generate.sh || return 1
	diff -r "$bin/gen" gen && cmp "$bin/contract.binpb" sdk/python/src/millrace_sdk/_core/contract.binpb &&
		diff "$bin/rest.json" sdk/python/src/millrace_sdk/_core/rest.json &&
		diff -r "$bin/typescript" sdk/typescript/src/gen && diff -r "$bin/dist" ui/dist && diff "$bin/NOTICE" NOTICE
}

planted_faults() { # the tests that builds with points for faults alone have; all others have run without these points
	local files names
	files=$(grep -rlE --include='*_test.go' '^//go:build faults' internal)
	names=$(echo "$files" | xargs grep -ohE '^func Test\w+' | cut -d ' ' -f 2 | paste -sd '|')
	# shellcheck disable=SC2046 # a list of words
	go test -short -tags "$tags faults" -timeout 10m -run "^($names)\$" $(echo "$files" | xargs -n 1 dirname | sort -u | sed 's,^,./,')
}

left_out() { # tests that keep both processors busy for a minute and more, and fail for few changes: they look for this variable
	export MILLRACE_CHECK=1
	# The first share the processors: the bench's result is not held against anything, and others mostly compile.
	go test -count=1 -tags "$tags" -timeout 10m -run '^Test(TheSmokeProfile|Shipped|VulnerabilitiesAreFound|ABenchThatIsKilled|AServerThatDiesWithin|GitClientsOfOthers|MirrorsByEachClient|ADiamondOfTasks|CronsAndABulkJob|PushesOfNewCommits|ManyPushesLeave|AClusterGrows|RandomNamesLeave|ALogCutAnywhere|ABrowserShowsData|AStoppedBench|AClusterIsUpgraded)' ./test/e2e ./internal/lint &&
		go test -count=1 -tags "$tags" -timeout 10m ./bench/load &&
		MILLRACE_SDK_KILLS=3 MILLRACE_SDK_SEED=$drawn MILLRACE_SDK_COUNTS=3 MILLRACE_SDK_TIMEOUTS=100 go test -count=1 -tags "$tags" -timeout 15m \
			-run '^TestPlantedBugs|^TestKills|^TestCounts|^TestTimeouts' ./test/sdk &&
		(cd sdk/python && MILLRACE_BIN=$PWD/../../.cache/millrace ../../.cache/py/bin/pytest -p no:cacheprovider tests/test_partition_server.py) &&
		# Long scenarios mostly wait.
		MILLRACE_SDK_LONG=only go test -count=1 -tags "$tags" -timeout 15m -parallel 8 -run '^TestScenario$' ./test/sdk
}

# What is drawn at random or in turn is drawn by the commit, so that each change sees other seeds and rows than the last.
commit=$(git rev-parse HEAD 2>/dev/null || echo 0000000000)
drawn=$((16#${commit:0:10}))

simulator() {
	SEEDS=500 FIRST=$((drawn * 1000 + 1)) RECORD=no TAGS=$tags scripts/sim.sh
}

race_detector() {
	# Its collector runs less often, and a program that has ended does not wait a second for the last reports of races.
	# More packages at once than there are processors: some of them mostly wait.
	# shellcheck disable=SC2086 # a list of words
	GOGC=300 GORACE=atexit_sleep_ms=100 \
		go test -race -short -shuffle=on -skip "$alone" -tags "$tags" -timeout 10m -p $(($(nproc) + 1)) $packages
}

scripts/setup.sh race
go build -C tools/golangci -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint
# What a machine compiles for the first time is none of the time that the steps may take: packages, and their tests, each as
# one of the steps builds it.
go list -race -test -export -tags "$tags" ./... >/dev/null
go list -test -export -tags "$tags faults" ./... >/dev/null
go run ./test/mutants "$bin/overlay"
go list -test -export -overlay "$bin/overlay/overlay.json" -tags "$tags mutants" ./... >/dev/null
go list -test -export -overlay "$bin/overlay/overlay.json" -tags "$tags faults mutants" ./... >/dev/null
(cd tools && go build -o "$bin/tools/" github.com/bufbuild/buf/cmd/buf google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc)
go tool -modfile=tools/go.mod -n govulncheck >/dev/null

step 'make test' env TAGS="$tags" scripts/test.sh
begin=$SECONDS
# Packages whose tests take long with the race detector take turns, by the commit: a third of them each time. All others run each time.
long=(node vector githttp rest machine/queue backup ../sdk/go retrieval server rules gitobj ../bench/load)
turn=() wait=()
for i in "${!long[@]}"; do
	if [ $((i % 3)) = $((drawn % 3)) ]; then turn+=("./internal/${long[i]}"); else wait+=(-e "/${long[i]#../}\$"); fi
done
packages="${turn[*]} $(go list -tags "$tags" ./... | grep -v -e '/test/' -e '/internal/lint$' "${wait[@]}")" # the longest begin first
# The rows on real processes mostly wait, so they run beside the steps that mostly compute.
beside='fault rows on real processes'
measured "$beside" env CHAOS=check CHAOS_TURN=$drawn go test -count=1 -tags "$tags" -timeout 15m ./test/chaos >"$bin/beside.log" 2>&1 &
waits=$!
# Long tests in which one goroutine does everything, or megabytes go where other tests send less: nothing races there that does
# not race elsewhere, and the race detector makes them several times longer.
alone='^Test(AllShortSequences|TornTails|SectorsOfTheLast|RandomSearchesNever|NoBytesOfAPack|TableOfNonsense|EveryReadyTaskOfALong|CycleWithinOneLayer|EachPlot|CommittedResults|CommittedAndNamed|AResultThatWasTouched|ReferencePage|PowerCut|AnyFailedOperation|GarbageZeros|FlippedBit|FileCut|WhatIsInMemoryDecides|OpenFindsAllPartitions|ClustersKeep|SeedsThatFound|OneSeedGives|MembersComeAndGoInSome|AGraphFinds|AGraphBuiltTwice|WalksFind|ClustersStay|BuildingAnew|TheModelCatches|TheModelAllowsEvery|FramesAre(WrittenAs|ReadAs)|ThreeReplicasAgree|OneReplicaGrowsToThreeAndOne|ABatchLarger|PayloadsAndResultsOfAMebibyte)'
step 'race detector' race_detector
step 'planted faults' planted_faults
step 'what make test leaves out' left_out
step 'simulator' simulator
step 'SDKs as users install them' scripts/sdk-install.sh
step 'types of the SDKs' scripts/sdk-types.sh
bugs='planted bugs' # beside linters, which share no files with it
measured "$bugs" env TAGS="$tags" scripts/mutants.sh >"$bin/bugs.log" 2>&1 &
planted=$!
step 'vet of builds for tests' go vet -overlay "$bin/overlay/overlay.json" -tags "$tags faults mutants" ./...
step 'golangci-lint' "$bin/golangci-lint" run --build-tags "$tags"
step 'known vulnerabilities' env TAGS="$tags" scripts/vulnerabilities.sh
wait "$planted" || failed=1
cat "$bin/bugs.log"
row "$bugs"
step 'generated code' unchanged
wait "$waits" || failed=1
cat "$bin/beside.log"
row "$beside"
added=$((SECONDS - begin))

printf '\n%-6s %6s %7s  %s\n%s' '' clock cpu step "$table"
if [ "$added" -gt 1200 ]; then
	echo "FAIL: the steps after make test took ${added}s, over 1200s"
	failed=1
elif [ "$added" -gt 1080 ]; then
	echo "WARNING: the steps after make test took ${added}s of 1200s"
fi
exit "$failed"
