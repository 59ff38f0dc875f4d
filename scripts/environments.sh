#!/usr/bin/env bash
# environments.sh: make what `make test` and `make e2e` make when they need it, before they need it: Python environments and the model,
# 10 GB. Where one cannot be made the others are; what needs it tries again, and says why not.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=0
made() { # command…: run it, say how long it took
  local from=$SECONDS status=0
  "$@" || status=$?
  [ "$status" -eq 0 ] || failed=1
  printf '%s: exit code %d, %d s\n' "$*" "$status" "$((SECONDS - from))"
}

made scripts/venv.sh site
made scripts/venv.sh kernels # small, and with it uv, with which the Go tests lock packages
made scripts/test-python.sh --prepare
for name in atropos openenv ors verifiers games trl trackers vllm; do made scripts/venv.sh "$name"; done
made scripts/sglang-venv.sh
made scripts/model.sh
exit "$failed"
