#!/usr/bin/env bash
# Tests the verl trainer against real verl on the CPU, in an environment of its own, and what a plan asks of it; arguments go to
# pytest. VERL=0.9.0 takes another supported version of verl, with the packages of the newest. Nothing here needs a GPU, and Ray is
# never started.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh verl
python=$PWD/.cache/venv-verl/bin/python
paths=$PWD/sdk/python/src:$PWD/plugins/verl
if [[ -n "${VERL:-}" ]]; then
	other=$PWD/.cache/verl-$VERL
	[[ -d "$other/verl" ]] || .cache/uv-0.13.8/bin/uv pip install -q --no-deps --python "$python" --target "$other" "verl==$VERL"
	export VERL_UNDER_TEST=$other
	paths+=:$other
fi
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONPATH=$paths
go test -count 1 -run TestAPlanChecksVerlsSettings ./plugins/verl
exec "$python" -m pytest plugins/verl/tests --rootdir plugins/verl -p no:cacheprovider -rs -v --durations 20 "$@"
