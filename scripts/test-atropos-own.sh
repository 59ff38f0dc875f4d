#!/usr/bin/env bash
# test-atropos-own.sh [go test flags]: environments of Atropos itself, unmodified. PyPI has all that they need, but the data sets that
# two of them download: the test writes small ones of the same columns. ATROPOS_CHECKOUT takes another version of the environments.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh atropos-own
if [ -z "${ATROPOS_CHECKOUT:-}" ]; then
  scripts/atropos-source.sh
  export ATROPOS_CHECKOUT=$PWD/.cache/atropos-0.4.0
fi
export ATROPOS_PYTHON=$PWD/.cache/venv-atropos-own/bin/python
exec go test -count 1 -timeout 45m -v -run '^TestAtroposOwnEnvironments$' "$@" ./plugins/atropos
