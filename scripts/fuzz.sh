#!/usr/bin/env bash
# Fuzzes decoders of what strangers, files and other nodes send, one target after the other, each for a while. The first that
# fails ends the run with the input, which go test keeps below testdata of its package: commit it with the fix.
#
#   TIME=2m scripts/fuzz.sh                  all targets
#   TIME=10m TARGET=FuzzPack scripts/fuzz.sh one
#   scripts/fuzz.sh                          lists the targets with their packages
#
# JOBS is how many inputs are tried at once; 1 by default. An input that reaches new code is made smaller at most 10 times: go test
# does that for a minute by default, in which it tries nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=$(grep -roE --include='*_test.go' '^func Fuzz\w+' cmd internal sdk | sed -E 's,^(.*)/[^/]+:func (\w+),./\1 \2,' | sort)
if [ -n "${TARGET:-}" ]; then
	targets=$(awk -v name="$TARGET" '$2 == name' <<<"$targets")
	if [ -z "$targets" ]; then
		echo "there is no fuzz target $TARGET" >&2
		exit 2
	fi
elif [ -z "${TIME:-}" ]; then
	echo "$targets"
	exit
fi
while read -r package name; do
	echo "== $package $name"
	go test -tags "${TAGS:-invariants}" -run '^$' -fuzz "^$name\$" -fuzztime "${TIME:-2m}" -fuzzminimizetime 10x -parallel "${JOBS:-1}" "$package"
done <<<"$targets"
