#!/usr/bin/env bash
# Formatting, vet and staticcheck over all Go code. The repository's own rules are tests of internal/lint.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants}
tool() { go tool -modfile=tools/go.mod "$@"; }

unformatted=$(tool gofumpt -l .)
if [ -n "$unformatted" ]; then
	printf 'Not formatted (make fmt repairs it):\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet -tags "$tags" ./...
(cd tools && go vet ./...)
(cd test/faultfs && go vet ./...)
tool staticcheck -tags "$tags" ./...
