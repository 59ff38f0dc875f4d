#!/usr/bin/env bash
# e2e-sglang.sh [go test flags]: whole recipes with real SGLang, a real Atropos environment and PyTorch, on the CPU. What they need is
# made by pinned scripts the first time. A flag -run chooses: scripts/e2e-sglang.sh -run TestSGLangShort is the shortest.
# SGLANG=oldest takes the oldest version that the plugin supports instead of the newest.
set -euo pipefail
cd "$(dirname "$0")/.."

export SGLANG=${SGLANG:-newest}
scripts/sglang-venv.sh
scripts/venv.sh atropos
scripts/model.sh
[ -x bin/recipe ] || make build

export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec env CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 120m -parallel 2 -v -run '^TestSGLang' "$@" ./e2e
