#!/usr/bin/env bash
# run.sh [CONVERSATIONS]: the same conversations with tools through recipe's sessions, verifiers' interception server and
# TRL's own ways to train with tools, each with a scripted model. Prints, of each, how many turns are trained after what
# the engine had received, and how many of the sampled tokens. docs/benchmarks/gateway.md has the figures.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/scripts/bench-agents
count=${1:-100}
for name in trl verifiers; do
  "$root/scripts/venv.sh" "$name"
done
"$root/scripts/model.sh"
work=$(mktemp -d)
cleanup() {
  [ -z "${gateway:-}" ] || kill "$gateway" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
(cd "$root" && go build -o "$work/bench-agents" ./scripts/bench-agents)
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 PYTHONPATH=$here
trl=$root/.cache/venv-trl/bin/python
"$trl" "$here/model.py" "$root/.cache/models/smollm2-135m" "$work/model"
port=$((20000 + RANDOM % 12000))
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
"$work/bench-agents" gateway "$port" "$key" "$work/sessions" "http://127.0.0.1:$((port + 1))" &
gateway=$!
for style in template own; do
  "$trl" "$here/agents.py" "$work/model" "$count" "$style" "http://127.0.0.1:$port" "$key" "$work/out.jsonl"
  for renderer in Qwen3 default; do
    "$root/.cache/venv-verifiers/bin/python" "$here/verifiers_way.py" "$work/model" "$count" "$style" "$work/out.jsonl" "$renderer"
  done
  "$trl" "$here/trl_ways.py" "$work/model" "$count" "$style" "$work/out.jsonl"
done
