#!/usr/bin/env bash
# atropos-source.sh: Atropos with its own environments in .cache/atropos-0.4.0, from atroposlib's source distribution on PyPI: the
# wheel leaves environments/ out. Prints nothing when it is there already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=0.4.0
sha256=96f6f089afe66bf03d1a1f6fe352d3ec5dded2ae3f51d342fb58e930027ab9c8
out=$root/.cache/atropos-$version

mkdir -p "$root/.cache"
exec 9>"$out.flock"
flock 9 # two callers at once: the second finds the work done
[ -d "$out" ] && exit 0

work=$(mktemp -d "$root/.cache/atropos.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps --no-binary :all: -d "$work" "atroposlib==$version"
echo "$sha256  $work/atroposlib-$version.tar.gz" | sha256sum --quiet --check
tar -xzf "$work/atroposlib-$version.tar.gz" -C "$work"
mv -T "$work/atroposlib-$version" "$out"
