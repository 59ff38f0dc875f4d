#!/usr/bin/env bash
# sglang-venv.sh: make the Python environment of the newest SGLang that is supported, or with SGLANG=oldest of the oldest.
set -euo pipefail
cd "$(dirname "$0")/.."
name=sglang
[ "${SGLANG:-newest}" = newest ] || name=sglang-$SGLANG
scripts/venv.sh "$name"

# Three processes of each server import all of SGLang: without compiled files a start takes minutes.
venv=.cache/venv-$name
if [ "$(cat "$venv/compiled" 2>/dev/null)" != "$(cat "$venv/stamp")" ]; then
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$venv/bin/python" -m compileall -qq -j 0 "$site" || true # some packages carry files that are no Python of this version
  cp "$venv/stamp" "$venv/compiled"
fi
