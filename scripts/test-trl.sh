#!/usr/bin/env bash
# test-trl.sh [trl|trl-oldest] [pytest arguments]: the trainer on real TRL, on the CPU, in the environment of scripts/python/NAME.txt (0.3 GB
# beside PyTorch, which environments share). `-m short` is the part that `make test` runs.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-trl}
shift || true
scripts/venv.sh "$name"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CUDA_VISIBLE_DEVICES=
export PYTHONPATH=$PWD/sdk/python/src:$PWD/plugins/grpo:$PWD/plugins/trl
exec ".cache/venv-$name/bin/python" -m pytest plugins/trl/tests --rootdir plugins/trl -c plugins/trl/pytest.ini -p no:cacheprovider -rs -q "$@"
