#!/usr/bin/env bash
# e2e-pairs.sh [ENGINE/TRAINER] [go test flags]: a pair of engine and trainer by each transport that no other script runs, on
# environments in Go, in Python and of Atropos, on the CPU, one run at a time; all pairs where none is named. scripts/e2e-pairs.sh
# sglang/verl is 5 runs of one to two minutes. `external` instead of a pair: trainers with a server that recipe has not started;
# `learning`: SGLang with each trainer for 12 steps, which learn addition.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
external) tests='^TestAnExternalEngine$'; shift ;;
learning) tests='^TestLearns$'; shift ;;
*/*) tests="^TestMatrix\$/^${1%/*}\$/^${1#*/}\$"; shift ;;
*) tests='^TestMatrix$' ;;
esac
scripts/sglang-venv.sh
for name in vllm trl verl axolotl atropos; do scripts/venv.sh "$name"; done
scripts/model.sh
[ -x bin/recipe ] || make build

export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec env CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 120m -parallel 1 -v -run "$tests" "$@" ./e2e
