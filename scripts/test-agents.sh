#!/usr/bin/env bash
# test-agents.sh: install agents of others, as their authors publish them on PyPI and npm (1.3 GB), and run each as an environment.
# Without npm the agents that need it are skipped.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/venv.sh" agents
if command -v npm >/dev/null; then
  node=$root/.cache/node-agents
  mkdir -p "$node"
  if ! cmp -s "$root/scripts/node/agents/package.json" "$node/installed.json"; then
    cp "$root/scripts/node/agents/package.json" "$node"
    npm install --prefix "$node" --no-package-lock --no-audit --no-fund
    cp "$node/package.json" "$node/installed.json"
  fi
fi
cd "$root"
PLUGINTEST_DEADLINE=5m go test -count=1 -timeout 30m -run '^TestAgentsOfOthers$' -v ./plugins/agent
