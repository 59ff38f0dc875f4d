#!/usr/bin/env bash
# e2e-nomad.sh [go test flags]: the executor of plugins/nomad, a program of its own, on a real Nomad agent, which
# scripts/nomad.sh starts on this machine for the time of the tests. Without root or the binary it says what is missing
# and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

cannot() { # who asks for these tests wants them run
  echo "no Nomad can be started here: $1" >&2
  exit 1
}

missing=$(scripts/nomad.sh why)
[ -z "$missing" ] || cannot "$missing"
[ -x bin/recipe ] || make build
go vet -C plugins/nomad .
go build -C plugins/nomad -trimpath -o "$PWD/bin/nomad" .
state=$(mktemp -d /var/tmp/recipe-e2e-nomad.XXXXXX)
cleanup() {
  scripts/nomad.sh down "$state/nomad"
  rm -rf "$state"
}
trap cleanup EXIT
export TMPDIR=$state # Nomad's drivers leave sockets there when they are killed
scripts/nomad.sh up "$state/nomad" >"$state/env"
export $(cat "$state/env") RECIPE_NOMAD_STATE=$state/nomad
CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 20m -parallel 1 -v -run '^TestNomad' "$@" ./e2e
