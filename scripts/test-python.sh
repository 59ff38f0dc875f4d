#!/usr/bin/env bash
# Tests and lints the Python SDK and the worker of the GRPO trainer on the CPU, and the programs of make site, in a virtual environment inside this clone.
# The environment is made once and reused until a requirements file changes. PYTHON chooses the interpreter.
# --prepare makes the environment and tests nothing; any other argument goes to pytest, which tests file by file in a process a core, at most 8: `-n 0`
# tests in one, as `--pdb` does by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

sdk=sdk/python
worker=plugins/grpo/worker
extensions=(plugins/vllm/extension plugins/sglang/extension)
venv=$PWD/.cache/venv-test
requirements=("$worker/requirements.txt" "$worker/requirements-test.txt")
stamp=$(cat "${requirements[@]}" "$0" | sha256sum | cut -d' ' -f1)

mkdir -p .cache
exec 9>"$venv.lock"
flock 9
if [[ "$(cat "$venv/stamp" 2>/dev/null || true)" != "$stamp" ]]; then
	echo "preparing $venv" >&2
	"${PYTHON:-python3}" -m venv --clear "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.8
	# triton compiles GPU kernels; without it the environment is 0.7 GB smaller
	printf 'triton; python_version < "3"\n' >"$venv/override.txt"
	"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --override "$venv/override.txt" \
		"${requirements[@]/#/--requirement=}"
	echo "$stamp" >"$venv/stamp"
fi
flock -u 9
if [[ "${1:-}" == --prepare ]]; then exit 0; fi

"$venv/bin/ruff" check "$sdk" "$worker"
"$venv/bin/ruff" format --check --quiet "$sdk" "$worker"
(cd "$sdk" && "$venv/bin/python" -m mypy)
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH=$PWD/$sdk/src:$PWD/plugins/grpo$(printf ":$PWD/%s" "${extensions[@]}")
# What engines are given to copy weights is tested against the worker, whose memory it reads.
exec "$venv/bin/python" -m pytest -n logical --maxprocesses 8 --dist loadfile \
	"$sdk/tests" "$worker/tests" "${extensions[@]/%//tests}" scripts/site/tests --rootdir "$worker" -p no:cacheprovider -rs "$@"
