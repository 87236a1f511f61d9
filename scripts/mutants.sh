#!/usr/bin/env bash
# Plants each bug that a package names, one at a time, and wants that package's tests to fail within seconds: a test that
# has never caught anything proves nothing.
#
#   scripts/mutants.sh         each bug in the package that names it; fails if one is not caught, or is not there
#   scripts/mutants.sh BUG     one bug in all packages; lists each test that finds it. It ends with 1, as a suite does
#                              that has found something, with 2 if there is no such bug, and with 3 if no test found it
#
# test/mutants has a patch for each bug, and bugs.txt with the test that must find it. Product files hold no trace of them: the
# builds here take them from an overlay. The environment's MILLRACE_MUTANT names the bug that is on. Time is a warning,
# because the machine may be busy with other work.
set -euo pipefail
cd "$(dirname "$0")/.."
tags="mutants ${TAGS:-invariants}"
table=test/mutants/bugs.txt
seconds_each=5
seconds_all=60

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

go run ./test/mutants "$bin/overlay"
overlay=$bin/overlay/overlay.json

bugs_of() { # folder: the bugs that its tests find
	awk -v folder="$1" '$1 == folder { print $2 }' "$table"
}

checker_of() { # bug: the start of its test's name
	awk -v bug="$1" '$2 == bug { print $3 }' "$table"
}

now() { echo "${EPOCHREALTIME/./}"; } # in microseconds

tenths() { # since when, in microseconds: as seconds
	local t=$((($(now) - $1) / 100000))
	echo "$((t / 10)).$((t % 10))"
}

# Folders of packages that find bugs; names of bugs as " a b c ".
folders=$(awk '$1 != "#" { print $1 }' "$table" | sort -u)
known=" $(awk '$1 != "#" { print $2 }' "$table" | tr '\n' ' ')"

if [ $# -gt 0 ]; then
	case "$known" in
	*" $1 "*) ;;
	*)
		echo "there is no bug $1; there are:$known" >&2
		exit 2
		;;
	esac
	packages=$(go list ./internal/... | grep -v '/internal/lint$')
	# shellcheck disable=SC2086 # a list of words
	MILLRACE_MUTANT=$1 go test -short -overlay "$overlay" -tags "$tags" -timeout 90s $packages >"$bin/log" 2>&1 || true
	if ! grep -E -e '^--- FAIL' -e '^panic: ' -e '^FAIL[[:space:]]' -e '^ok ' "$bin/log" | grep -v '^ok '; then
		echo "MISSED: no test found $1"
		exit 3
	fi
	echo "found: $1"
	exit 1
fi

planted=0
missed=0
all=$(now)

plant() { # folder, bug
	local begin by checker
	begin=$(now)
	planted=$((planted + 1))
	checker=$(checker_of "$2")
	if (cd "$1" && MILLRACE_MUTANT=$2 "$bin/tests" -test.short -test.failfast -test.timeout 50s -test.run "^$checker" >"$bin/log" 2>&1); then
		echo "MISSED: $checker of $1 passes with the bug $2"
	elif grep -q '^panic: test timed out' "$bin/log"; then
		echo "MISSED: $checker of $1 hangs with the bug $2 and does not say what is wrong"
	elif ! by=$(grep -m 1 -oE -e '^--- FAIL: [^ ]+' -e '^panic: .*' "$bin/log"); then
		echo "INVALID: $1 did not fail in a test with the bug $2:"
		tail -n 5 "$bin/log"
	else
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
	go test -c -overlay "$overlay" -tags "$tags" -o "$bin/tests" "./$dir"
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
took=$(tenths "$all")

# Tests that plant bugs by themselves must find them: models and suites that other packages trust.
for dir in $(grep -rlE --include='*_test.go' '^//go:build mutants' internal | xargs -n 1 dirname | sort -u); do
	go test -short -overlay "$overlay" -tags "$tags" -run 'Planted|NeighbourWhoIsSeen' "./$dir" || missed=$((missed + 1))
done

echo "$planted planted, $missed missed, ${took}s with builds"
if [ "${took%.*}" -ge "$seconds_all" ]; then
	echo "WARNING: that is more than ${seconds_all}s"
fi
[ "$planted" -gt 0 ] && [ "$missed" = 0 ]
