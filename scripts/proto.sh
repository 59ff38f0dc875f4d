#!/usr/bin/env bash
# Regenerate sdk/pluginpb from plugin.proto. Needs Python 3 (for protoc) and Go; everything lands under .cache.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=.cache/proto
[ -x "$cache/venv/bin/python" ] || { python3 -m venv "$cache/venv"; "$cache/venv/bin/pip" install -q grpcio-tools==1.85.1; }
GOBIN="$PWD/$cache" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$PWD/$cache" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH="$PWD/$cache:$PATH" "$cache/venv/bin/python" -m grpc_tools.protoc -I sdk/pluginpb \
  --go_out=sdk/pluginpb --go_opt=paths=source_relative \
  --go-grpc_out=sdk/pluginpb --go-grpc_opt=paths=source_relative sdk/pluginpb/plugin.proto
