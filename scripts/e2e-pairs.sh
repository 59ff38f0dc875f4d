#!/usr/bin/env bash
# e2e-pairs.sh [go test flags]: pairs of engine and trainer that no other script runs, on environments in Go, in Python and of Atropos,
# and trainers with a server that recipe has not started, on the CPU, one at a time: scripts/e2e-pairs.sh -run TestMatrix/sglang/verl
# is one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/sglang-venv.sh
for name in vllm trl verl axolotl atropos; do scripts/venv.sh "$name"; done
scripts/model.sh
[ -x bin/recipe ] || make build

export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec go test -tags e2e -count 1 -timeout 120m -parallel 1 -v -run '^Test(Matrix|AnExternalEngine)$' "$@" ./e2e
