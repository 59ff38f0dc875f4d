#!/usr/bin/env bash
# e2e.sh [go test flags]: whole recipes with real vLLM, a real Atropos environment and PyTorch, on the CPU. What they need is made
# by pinned scripts the first time (about 6 GB). A flag -run chooses one of them: scripts/e2e.sh -run TestAddition. TestMemory runs only so:
# what it shows of transport ipc, TestReasoningGym shows as well.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh vllm
scripts/venv.sh atropos
scripts/model.sh
[ -x bin/recipe ] || make build

# Threads beyond the cores make every process slower. A recipe by itself leaves half of two cores idle, since its trainer and its server
# wait for each other; two at a time need about 16 GB.
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec go test -tags e2e -count 1 -timeout 60m -parallel 2 -v -run '^Test(Addition|ShuffledRewards|Adapter|Collective|ReasoningGym|TheRealWorkerTakesTurns|Init|ALossBesideTheRecipe)$' "$@" ./e2e
