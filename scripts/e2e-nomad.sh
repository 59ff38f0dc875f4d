#!/usr/bin/env bash
# e2e-nomad.sh [go test flags]: the executor of plugins/nomad, a program of its own, on a real Nomad agent, which
# scripts/nomad.sh starts on this machine for the time of the tests. Without root or the binary it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { # as `go test -v` says it, so that it is counted and seen
  printf -- '--- SKIP: TestNomad (0.00s)\n    no Nomad can be started here: %s\n' "$1"
  exit 0
}

missing=$(scripts/nomad.sh why)
[ -z "$missing" ] || skip "$missing"
[ -x bin/recipe ] || make build
go vet -C plugins/nomad .
go build -C plugins/nomad -trimpath -o "$PWD/bin/nomad" .
state=$(mktemp -d /var/tmp/recipe-e2e-nomad.XXXXXX)
cleanup() {
  scripts/nomad.sh down "$state/nomad"
  rm -rf "$state"
}
trap cleanup EXIT
scripts/nomad.sh up "$state/nomad" >"$state/env"
export $(cat "$state/env") RECIPE_NOMAD_STATE=$state/nomad
CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 20m -parallel 1 -v -run '^TestNomad' "$@" ./e2e
