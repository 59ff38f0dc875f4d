#!/bin/bash
# A real OpenTelemetry collector for tests, made with its own builder: it takes OTLP over HTTP and passes it on.
#
#   scripts/otelcol.sh build    build it into the user's cache (a few minutes of one core; once); prints its path
set -euo pipefail

VERSION=0.160.0
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recipe-otelcol/$VERSION

build() {
  [ ! -x "$CACHE/otelcol" ] || return 0
  mkdir -p "$CACHE"
  cat >"$CACHE/builder.yaml" <<CONFIG
dist:
  name: otelcol
  description: otelcol
  version: $VERSION
  output_path: $CACHE/source
receivers:
  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v$VERSION
exporters:
  - gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter v$VERSION
CONFIG
  # Outside any module: the builder's requirements are none of ours.
  (cd "$CACHE" && GOFLAGS=-p=1 nice -n 19 go run "go.opentelemetry.io/collector/cmd/builder@v$VERSION" --config builder.yaml >&2)
  mv "$CACHE/source/otelcol" "$CACHE/otelcol"
}

case ${1-} in
  build) build; echo "$CACHE/otelcol" ;;
  *) echo "usage: scripts/otelcol.sh build" >&2; exit 2 ;;
esac
