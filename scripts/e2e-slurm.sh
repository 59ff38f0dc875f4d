#!/usr/bin/env bash
# e2e-slurm.sh [go test flags]: executor "slurm" on a real cluster of three hosts, which scripts/slurm.sh starts on this machine for
# the time of the tests. Without root or Debian's packages of Slurm it says what is missing and tests nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { # as `go test -v` says it, so that it is counted and seen
  printf -- '--- SKIP: TestSlurm (0.00s)\n    no Slurm cluster can be started here: %s\n' "$1"
  exit 0
}

missing=$(scripts/slurm.sh why)
case "${CI:-}:$missing" in
  true:*"apt-get install"*) # a machine of CI may be changed
    printf '%s\n' "$missing"
    timeout 240 bash -c "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      ${missing##*apt-get install }" >/dev/null 2>&1 || true
    missing=$(scripts/slurm.sh why) ;;
esac
[ -z "$missing" ] || skip "$missing"
case $PWD in
  /tmp/*) skip "this checkout lies below /tmp, which each host of the cluster has for itself" ;;
esac
[ -x bin/recipe ] || make build
shared=$(mktemp -d /var/tmp/recipe-e2e-slurm.XXXXXX) # not below /tmp, which each host has for itself
cleanup() {
  scripts/slurm.sh down
  rm -rf "$shared"
}
trap cleanup EXIT
scripts/slurm.sh up >"$shared/env" 2>"$shared/why" || skip "$(tail -n 3 "$shared/why" | tr '\n' ' ')"
export "$(cat "$shared/env")" RECIPE_SLURM_SHARED=$shared TMPDIR=$shared
CGO_ENABLED=0 go test -trimpath -count 1 -timeout 10m -v -run '^TestCompliance$' "$@" ./plugins/slurm
# What takes longest is left to `make e2e-slurm-all`.
skip='Addition|AddressLost|Collective|Delay|Delta|DeltaServed|GangRestarts|Image|ImageMissing|InferenceTwoHosts'
skip="^TestSlurm($skip|NetworkCut|Preemption|Staged|StoreAfterHostLost|TrainersOnTwoHosts|TwoHosts|WithoutGangs)\$"
if [ -n "${RECIPE_SLURM_ALL:-}" ]; then
  skip='^$'
  scripts/venv.sh vllm
  scripts/venv.sh atropos
  for trainer in verl trl axolotl; do scripts/venv.sh "$trainer"; done
  scripts/model.sh
  RECIPE_S3=$(scripts/s3.sh build)
  export RECIPE_S3
  lacking=$(scripts/apptainer.sh why)
  if [ -z "$lacking" ]; then
    RECIPE_APPTAINER=$(scripts/apptainer.sh build)
    export RECIPE_APPTAINER
  else
    echo "no container of Apptainer is tried: $lacking"
  fi
fi
CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 90m -parallel 1 -v -run '^TestSlurm' -skip "$skip" "$@" ./e2e
