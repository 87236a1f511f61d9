#!/usr/bin/env bash
# Looks for known vulnerabilities in what the module of a directory calls, by govulncheck as tools/go.mod pins it. Ends with
# 0 if there are none, 3 if there are some, which are printed, 75 if the database could not be asked, and 1 if anything
# else failed.
#
#   scripts/vulnerabilities.sh [dir]   of this repository, or of a module elsewhere
#
# GOVULNDB names another database than https://vuln.go.dev: a mirror, or file:///path of a copy.
set -euo pipefail
cd "$(dirname "$0")/.."
db=${GOVULNDB:-https://vuln.go.dev}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
program=$(go tool -modfile=tools/go.mod -n govulncheck) # which the go command keeps in its cache
status=0
"$program" -C "${1:-.}" -db "$db" -test -tags "${TAGS:-invariants}" ./... 2>"$errors" || status=$?
cat "$errors" >&2
case $status in
0 | 3) exit "$status" ;;
esac
# That it knows no format of a database is all that govulncheck says of a mirror that does not answer.
if [[ $db == http* ]] && grep -q -e 'fetching vulnerabilities: ' -e 'unrecognized vulndb format' "$errors"; then
	echo "SKIPPED: the database of vulnerabilities $db is out of reach, so nothing was looked for" >&2
	exit 75
fi
exit 1
