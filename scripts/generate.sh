#!/usr/bin/env bash
# Writes gen/, and the messages of the SDKs, from proto/, with the compiler and the plugins that tools/go.mod pins.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=${TAGS:-invariants} # what is compiled here is compiled elsewhere too

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/" \
	github.com/bufbuild/buf/cmd/buf \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)
PATH="$bin:$PATH" "$bin/buf" generate

# The code that maps the bodies of REST to messages, as the options of the contract say.
go build -o "$bin/restgen" ./internal/restgen
"$bin/restgen" client >sdk/go/internal/rest/contract_gen.go
"$bin/restgen" server >internal/rest/contract_gen.go

# The OpenAPI document. Its package must be there for the program that writes it to be built.
mkdir gen/openapi
cat >gen/openapi/openapi.go <<'GO'
// Package openapi holds the OpenAPI document of the REST interface. It is generated: see scripts/generate.sh.
package openapi

import _ "embed"

// Document is the document, as JSON.
//
//go:embed millrace.v1.json
var Document []byte
GO
echo '{}' >gen/openapi/millrace.v1.json
"$bin/buf" build proto -o "$bin/contract.binpb"
go run -tags "$tags" ./internal/apidoc <"$bin/contract.binpb" >"$bin/millrace.v1.json"
cat "$bin/millrace.v1.json" >gen/openapi/millrace.v1.json

# The messages of the SDKs: descriptors for Python, code for TypeScript.
scripts/sdk-setup.sh
.cache/py/bin/python sdk/python/scripts/contract.py "$bin/contract.binpb"
PATH="$bin:$PATH" sdk/typescript/scripts/generate.sh

# The types of the contract that the web UI uses, and its built files.
scripts/ui.sh generate

# NOTICE and the bill of materials: the modules that the program links, as go.mod pins them, and their licenses.
go test -count=1 -tags "$tags" ./internal/lint -run '^TestTheNoticeAndTheBillOfMaterials' -update

# The pages of docs/reference, and the table of the README. Their tests hold them to what they are made of.
go test -count=1 -tags "$tags" ./cmd/millrace ./internal/server -run '^TestTheReference' -update
go test -count=1 -tags "$tags" ./bench/report -run '^TestReferencePageIsUpToDate$' -update
go test -count=1 -tags "$tags" ./test/chaos/campaign -run '^TestThePageOfGuaranteesIsWhatTheResultsSay$' -update
