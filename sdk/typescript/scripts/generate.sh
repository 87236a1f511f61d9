#!/usr/bin/env bash
# Writes src/gen from the contract. buf must be on PATH; the plugin is ts-proto of node_modules. rest.ts is made of what
# sdk/python/scripts/contract.py has written before.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cat >"$out/buf.gen.yaml" <<YAML
version: v2
plugins:
  - local: $PWD/node_modules/.bin/protoc-gen-ts_proto
    out: $out/gen
    include_imports: true
    opt: [forceLong=bigint, oneof=unions-value, useOptionals=none, outputJsonMethods=false, outputServices=none, outputClientImpl=false, importSuffix=.js, env=node, useDate=false, esModuleInterop=true, exportCommonSymbols=false, outputPartialMethods=true, outputTypeAnnotations=false, useExactTypes=false, unrecognizedEnum=false, useSnakeTypeName=false]
inputs:
  - directory: ../../proto
YAML
buf generate --template "$out/buf.gen.yaml"
rm -rf src/gen
mkdir -p src/gen
for file in google/protobuf/duration google/protobuf/timestamp millrace/v1/stream millrace/v1/task millrace/v1/batch millrace/v1/bulk millrace/v1/cron millrace/v1/kv millrace/v1/limiter millrace/v1/ref_change millrace/v1/vector; do
	mkdir -p "src/gen/$(dirname "$file")"
	cp "$out/gen/$file.ts" "src/gen/$file.ts"
done
node scripts/rest.mjs
