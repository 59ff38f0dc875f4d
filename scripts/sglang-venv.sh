#!/usr/bin/env bash
# sglang-venv.sh: make the Python environment of the newest SGLang that is supported, or with SGLANG=oldest of the oldest.
set -euo pipefail
name=sglang
[ "${SGLANG:-newest}" = newest ] || name=sglang-$SGLANG
exec "$(dirname "$0")/venv.sh" "$name"
