#!/usr/bin/env bash
# e2e-sglang.sh [go test flags]: whole recipes with real SGLang, a real Atropos environment and PyTorch, on the CPU. What they need is
# made by pinned scripts the first time (about 7 GB). A flag -run chooses: scripts/e2e-sglang.sh -run TestSGLangShort is the shortest.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh sglang
scripts/venv.sh atropos
scripts/model.sh
[ -x bin/recipe ] || make build

# Three processes of each server import all of SGLang: without compiled files a start takes minutes.
venv=.cache/venv-sglang
if [ "$(cat "$venv/compiled" 2>/dev/null)" != "$(cat "$venv/stamp")" ]; then
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$venv/bin/python" -m compileall -q -j 0 "$site" || true # some packages carry files that are no Python of this version
  cp "$venv/stamp" "$venv/compiled"
fi

export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec go test -tags e2e -count 1 -timeout 120m -parallel 2 -v -run '^TestSGLang' "$@" ./e2e
