#!/usr/bin/env bash
# test-harbor.sh: install Harbor's own package from PyPI, let it run our task folders, and compare its rewards with ours.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/venv.sh" harbor
cd "$root"
go test -count=1 -timeout 15m -run '^TestRewardsAreHarbors$' -v ./plugins/agent
