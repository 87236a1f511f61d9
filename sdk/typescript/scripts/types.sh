#!/usr/bin/env bash
# Checks types with the compiler of a package of node_modules: source and tests, in which wrong uses are marked; the code of the pages, of the
# README and of the example; and what runs at the edge, without the types of Node.
#
#   scripts/types.sh typescript-7       or typescript, which is 5.9
set -euo pipefail
cd "$(dirname "$0")/.."
tsc=node_modules/$1/bin/tsc
docs=test/.docs
trap 'rm -rf $docs' EXIT
mkdir -p $docs
for page in ../../docs/start/{typescript,cron,limits,batches}.md README.md; do
	sed -n '/^```ts$/,/^```$/p' "$page" | sed '/^```/d' >"$docs/$(basename "$page" .md).ts"
done
node "$tsc" --noEmit
node "$tsc" -p tsconfig.docs.json
node "$tsc" -p tsconfig.edge.json
