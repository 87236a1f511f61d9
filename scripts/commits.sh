#!/usr/bin/env bash
# Checks the messages of commits: "package: imperative" of at most 72 characters, then an empty line and a body that says why.
# Commits of documents or results alone need no body.
#
#   scripts/commits.sh [range]   by default all after the last one that is not held to this
set -euo pipefail
cd "$(dirname "$0")/.."
first=309ee3687440321560574b741149a5da18f20c2a
if ! git rev-parse -q --verify "$first^{commit}" >/dev/null 2>&1 && [ -z "${1:-}" ]; then
	echo "commits: not a clone with the history, so no message was checked" >&2
	exit 0
fi
failed=0
for commit in $(git rev-list --no-merges "${1:-$first..HEAD}"); do
	subject=$(git log -1 --format=%s "$commit")
	wrong=""
	[[ $subject =~ ^[a-z0-9./_-]+(,\ [a-z0-9./_-]+)*:\ [^A-Z\ ] ]] || wrong='must begin with "package: imperative"'
	[ "${#subject}" -le 72 ] || wrong="has ${#subject} characters: must be at most 72"
	if ! [[ $subject =~ ^(docs|bench/results|test/chaos/results): ]] && [ -z "$(git log -1 --format=%b "$commit")" ]; then
		wrong="has no body: say why, and what was measured"
	fi
	[ -z "$wrong" ] || { echo "${commit:0:10} \"$subject\" $wrong" >&2 && failed=1; }
done
exit "$failed"
