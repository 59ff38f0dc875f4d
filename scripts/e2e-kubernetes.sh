#!/usr/bin/env bash
# e2e-kubernetes.sh [go test flags]: executor "kubernetes" on a real cluster of two nodes, which scripts/kubernetes.sh
# starts on this machine for the time of the tests. Without root, packages or binaries it says what is missing and fails.
set -euo pipefail
cd "$(dirname "$0")/.."

cannot() { # who asks for these tests wants them run
  echo "no Kubernetes cluster can be started here: $1" >&2
  exit 1
}

missing=$(scripts/kubernetes.sh why)
[ -z "$missing" ] || cannot "$missing"
[ -x bin/recipe ] || make build
shared=$(mktemp -d /var/tmp/recipe-e2e-kubernetes.XXXXXX)
cleanup() {
  scripts/kubernetes.sh down
  rm -rf "$shared"
}
trap cleanup EXIT
scripts/kubernetes.sh up "$PWD/bin/recipe" >"$shared/env" 2>"$shared/why" || cannot "$(tail -n 3 "$shared/why" | tr '\n' ' ')"
export "$(cat "$shared/env")" RECIPE_KUBERNETES_SHARED=$shared TMPDIR=$shared
! scripts/kubernetes.sh gangs || export RECIPE_KUBERNETES_GANGS=1
KUBECONFIG=${KUBECONFIG/researcher/admin} CGO_ENABLED=0 go test -trimpath -count 1 -timeout 10m -v -run '^TestComplianceOnACluster$' "$@" \
  ./plugins/kubernetes
CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 40m -parallel 1 -v -run '^TestKubernetes' "$@" ./e2e
