#!/usr/bin/env bash
# load.sh [SESSIONS [TURNS]]: many programs at once through recipe's gateway and through verifiers' interception server, one
# after the other, before an engine that takes a second to answer. docs/benchmarks/gateway.md has the figures.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/scripts/bench-agents
sessions=${1:-100} turns=${2:-20}
for name in trl verifiers; do
  "$root/scripts/venv.sh" "$name"
done
"$root/scripts/model.sh"
work=$(mktemp -d)
started=()
cleanup() {
  [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
(cd "$root" && go build -o "$work/bench-agents" ./scripts/bench-agents)
bench=$work/bench-agents
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 PYTHONPATH=$here
"$root/.cache/venv-trl/bin/python" "$here/model.py" "$root/.cache/models/smollm2-135m" "$work/model"
port=$((20000 + RANDOM % 12000))
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
engine=http://127.0.0.1:$((port + 1))
"$bench" engine $((port + 1)) &
started+=($!)
"$bench" gateway "$port" "$key" "$work/sessions" "$engine" &
gateway=$!
started+=("$gateway")
until curl -sf -o "$work/none" "http://127.0.0.1:$port/health"; do sleep 0.2; done
"$bench" open "http://127.0.0.1:$port" "$key" "$sessions" >"$work/keys"
"$bench" load recipe "$turns" "$gateway" <"$work/keys"
echo "journals: $(cat "$work"/sessions/* | wc -c) bytes for $((sessions * turns * 64)) sampled tokens"

"$root/.cache/venv-verifiers/bin/python" "$here/verifiers_way.py" serve "$work/model" "$engine" "$sessions" >"$work/keys" &
server=$!
started+=("$server")
until [ "$(wc -l <"$work/keys")" = "$sessions" ]; do sleep 0.2; done
"$bench" load verifiers "$turns" "$server" <"$work/keys"
