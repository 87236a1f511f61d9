#!/usr/bin/env bash
# Writes gen/ anew from proto/, with the compiler and the plugins that tools/go.mod pins.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/" \
	github.com/bufbuild/buf/cmd/buf \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)
PATH="$bin:$PATH" "$bin/buf" generate
