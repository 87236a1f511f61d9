#!/usr/bin/env bash
# Plants each bug that a package names, one at a time, and wants that package's tests to fail within seconds: a test that
# has never caught anything proves nothing.
#
#   scripts/mutants.sh         each bug in the package that names it; fails if one is not caught, or is not there
#   scripts/mutants.sh BUG     one bug in all packages; lists each test that finds it. It ends with 1, as a suite does
#                              that has found something, with 2 if there is no such bug, and with 3 if no test found it
#
# A package plants bugs in mutants_on.go, under the build tag mutants, and asks for them by name: the environment's
# MILLRACE_MUTANT is the one that is on.
set -euo pipefail
cd "$(dirname "$0")/.."
tags="mutants ${TAGS:-invariants}"

# What must be planted, and the test that is there to find it. A bug without a line is for all tests of its package. Time
# is a warning, because the machine may be busy with other work.
checkers='
no_fsync                           TestPowerCutLosesNothingAcknowledged
ack_before_sync                    TestPowerCutLosesNothingAcknowledged
lost_directory_sync                TestPowerCutLosesNothingAcknowledged
skip_crc                           TestFlippedBitBeforeTheLastSeal
eof_on_corruption                  TestFlippedBitBeforeTheLastSeal
torn_batch_refuses_start           TestFileCutAtAnyByte
applied_in_other_batch             TestPowerCutAtAnyPoint
dedup_lost_on_restart              TestRequestIDsSurviveARestart
idempotency_key_without_tenant     TestTenantsHaveRequestIDsOfTheirOwn
no_fence                           TestAllShortSequences
fenced_request_applied_twice       TestFencedRequestsAreAppliedOnce
request_id_after_fence             TestFencedRequestsAreAppliedOnce
effects_in_second_entry            TestAllShortSequences
tenant_check_missing_on_one_route  TestEveryRouteReachesItsOwnTenantAlone
unbounded_stream_buffer            TestTasksAreGrantedOnlyWithRoomToSend
no_resync_at_open                  TestBytesThatWereNeverSynced
retry_failed_fsync                 TestAnyFailedOperation
seal_skipped                       TestFlippedBitBeforeTheLastSeal
segment_recycled_too_early         TestPowerCutLosesNothingAcknowledged
vote_not_synced                    TestClustersKeepTheirPromises
ack_before_quorum                  TestClustersKeepTheirPromises
apply_above_durable                TestClustersKeepTheirPromises
stale_leader_read                  TestClustersKeepTheirPromises
serve_before_own_term              TestClustersKeepTheirPromises
wall_clock_lease                   TestClustersKeepTheirPromises
wall_time_in_apply                 TestClustersKeepTheirPromises
map_order_in_apply                 TestClustersKeepTheirPromises
delayed_lost_at_failover           TestClustersKeepTheirPromises
double_apply_after_snapshot        TestClustersKeepTheirPromises
promote_behind                     TestClustersKeepTheirPromises
reused_replica_id                  TestClustersKeepTheirPromises
snapshot_lowers_index              TestSnapshotThatIsNotForTheShard
snapshot_without_excise            TestNothingThatWasLearntOfTheOldState
credential_by_shard_time           TestCredentialsAreJudgedAtTheLater
avx2_saturates                     TestEveryKernelGivesTheSameInteger
cache_key_without_tenant           TestVectorsAreKeptByTenantAndModel
cache_key_without_model            TestVectorsAreKeptByTenantAndModel
gate_after_top_k                   TestRandomSearchesNeverLeak
exact_for_best_few                 TestRandomSearchesNeverLeak
live_bit_ignored                   TestRandomSearchesByTheGraph
tail_not_scanned                   TestAGraphFindsWhatIsNew
walk_without_fallback              TestRandomSearchesByTheGraph
pack_not_synced                    TestAPowerCutTakesNoPackThatACommitNames
staged_name_not_synced             TestAPowerCutTakesNoPackThatACommitNames
unstaged_before_sync               TestAPowerCutTakesNoPackThatACommitNames
copy_not_synced                    TestAPowerCutTakesNoCopyThatCounted
'
seconds_each=5
seconds_all=60

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

bugs_of() { # folder: the bugs that its package plants
	{
		grep -ohE 'mutant\("[a-z0-9_]+"\)' "$1"/*.go
		grep -ohE '= +"[a-z0-9]+(_[a-z0-9]+)+"' "$1/mutants_on.go"
	} | cut -d '"' -f 2 | sort -u || true
}

checker_of() { # bug: the start of its test's name
	awk -v bug="$1" '$1 == bug { print $2 }' <<<"$checkers"
}

now() { echo "${EPOCHREALTIME/./}"; } # in microseconds

tenths() { # since when, in microseconds: as seconds
	local t=$((($(now) - $1) / 100000))
	echo "$((t / 10)).$((t % 10))"
}

# Folders of packages that plant bugs; names of bugs as " a b c ".
folders=$(find internal -name mutants_on.go -exec dirname {} + | sort)
known=" "
for dir in $folders; do
	known+="$(bugs_of "$dir" | tr '\n' ' ')"
done

if [ $# -gt 0 ]; then
	case "$known" in
	*" $1 "*) ;;
	*)
		echo "there is no bug $1; there are:$known" >&2
		exit 2
		;;
	esac
	packages=$(go list -tags "$tags" ./internal/... | grep -v '/internal/lint$')
	# shellcheck disable=SC2086 # a list of words
	MILLRACE_MUTANT=$1 go test -short -tags "$tags" -timeout 90s $packages >"$bin/log" 2>&1 || true
	if ! grep -E -e '^--- FAIL' -e '^panic: ' -e '^FAIL[[:space:]]' -e '^ok ' "$bin/log" | grep -v '^ok '; then
		echo "MISSED: no test found $1"
		exit 3
	fi
	echo "found: $1"
	exit 1
fi

planted=0
missed=0
caught=" "
all=$(now)

plant() { # folder, bug
	local begin by checker
	begin=$(now)
	planted=$((planted + 1))
	checker=$(checker_of "$2")
	if (cd "$1" && MILLRACE_MUTANT=$2 "$bin/tests" -test.short -test.failfast -test.timeout 50s -test.run "^$checker" >"$bin/log" 2>&1); then
		echo "MISSED: $checker of $1 passes with the bug $2"
	elif grep -q '^panic: test timed out' "$bin/log"; then
		echo "MISSED: $checker of $1 hangs with the bug $2, which tells nobody what is wrong"
	elif ! by=$(grep -m 1 -oE -e '^--- FAIL: [^ ]+' -e '^panic: .*' "$bin/log"); then
		echo "INVALID: $1 did not fail in a test with the bug $2:"
		tail -n 5 "$bin/log"
	else
		caught+="$2 "
		printf '%-33s %4ss  %s %s\n' "$2" "$(tenths "$begin")" "$1" "${by#--- FAIL: }"
		if [ $(($(now) - begin)) -gt $((seconds_each * 1000000)) ]; then
			echo "WARNING: that took more than ${seconds_each}s"
		fi
		return
	fi
	missed=$((missed + 1))
}

for dir in $folders; do
	bugs=$(bugs_of "$dir")
	[ -n "$bugs" ] || continue
	go test -c -tags "$tags" -o "$bin/tests" "./$dir"
	all_of=$(for bug in $bugs; do checker_of "$bug"; done | sort -u | paste -sd '|')
	if ! (cd "$dir" && MILLRACE_MUTANT='' "$bin/tests" -test.short -test.timeout 5m -test.run "^($all_of)" >"$bin/log" 2>&1); then
		echo "INVALID: tests of $dir fail without a bug:"
		tail -n 20 "$bin/log"
		missed=$((missed + 1))
		continue
	fi
	for bug in $bugs; do
		plant "$dir" "$bug"
	done
done
for bug in $(awk '{ print $1 }' <<<"$checkers"); do
	case "$caught" in
	*" $bug "*) ;;
	*)
		echo "MISSED: $bug is not planted, or not caught"
		missed=$((missed + 1))
		;;
	esac
done
took=$(tenths "$all")

# Tests that plant bugs by themselves must find them: models and suites that other packages trust.
for dir in $(grep -rlE --include='*_test.go' '^//go:build mutants' internal | xargs -n 1 dirname | sort -u); do
	go test -short -tags "$tags" "./$dir" || missed=$((missed + 1))
done

echo "$planted planted, $missed missed, ${took}s with builds"
if [ "${took%.*}" -ge "$seconds_all" ]; then
	echo "WARNING: that is more than ${seconds_all}s"
fi
[ "$planted" -gt 0 ] && [ "$missed" = 0 ]
