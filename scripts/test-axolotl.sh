#!/usr/bin/env bash
# test-axolotl.sh [pytest arguments]: the trainer on real Axolotl, on the CPU (6 GB of packages, of which PyTorch is shared).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh axolotl
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CUDA_VISIBLE_DEVICES= AXOLOTL_DO_NOT_TRACK=1
export PYTHONPATH=$PWD/sdk/python/src:$PWD/plugins/trl:$PWD/plugins/axolotl:$PWD
exec .cache/venv-axolotl/bin/python -m pytest plugins/axolotl/tests --rootdir plugins/axolotl -p no:cacheprovider -rs -q "$@"
