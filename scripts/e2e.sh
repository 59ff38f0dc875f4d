#!/usr/bin/env bash
# e2e.sh [--all] [go test flags]: whole recipes with real vLLM (the shortest with SGLang, too), a real Atropos environment and PyTorch,
# on the CPU. What they need is made by pinned scripts the first time (about 7 GB). A flag -run chooses one of them: scripts/e2e.sh
# -run TestAddition. --all adds those that show a further way of doing what the others do (ipc, adapters, nccl, float8, shuffled rewards,
# memory, agents, distillation): twenty minutes more.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh vllm
[[ " $*" == *" -run"* ]] || scripts/sglang-venv.sh # who chooses another test does without it
scripts/venv.sh atropos
scripts/model.sh
[ -x bin/recipe ] || make build

# Threads beyond the cores make every process slower. A recipe by itself leaves half of two cores idle, since its trainer and its server
# wait for each other; two at a time need about 16 GB.
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
tests='Guard|Addition|Blocks|Steps|Quantized|TheRealWorkerTakesTurns|Init|ALossBesideTheRecipe|SGLangShort'
if [ "${1:-}" = --all ]; then
  tests="$tests|ReasoningGym|ShuffledRewards|Adapter|Collective|Memory|Float8|AgentTools|AServedReference|Distillation"
  shift
fi
# As bin/recipe is built, whose packages are compiled already: otherwise two minutes go by before the first test.
exec env CGO_ENABLED=0 go test -trimpath -tags e2e -count 1 -timeout 90m -parallel 2 -v -run "^Test($tests)\$" "$@" ./e2e
