#!/usr/bin/env bash
# Makes the release of this platform, installs it in each way that this machine has, and trains with the wheel, in an environment that has
# neither Go nor a compiler. RECIPE_BUILT is a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/../.."

platform=$(go env GOOS)/$(go env GOARCH)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
release=$folder/release
version=$(git describe --tags --always --dirty)
built=${RECIPE_BUILT:-bin/recipe}
nfpm=
[ "$(go env GOOS)" != linux ] || nfpm="go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.1"
go run ./scripts/dist -version "$version" -out "$release" -nfpm "$nfpm" "$platform=$built"
(cd "$release" && if command -v sha256sum >/dev/null; then sha256sum --quiet -c SHA256SUMS; else shasum -a 256 --quiet -c SHA256SUMS; fi)
expected=$("$built" version)

# bare runs a command where only the system's programs are.
bare() { env -i PATH="$1:/usr/bin:/bin" HOME="$folder/home" LANG=C.UTF-8 RECIPE_VAR_steps="${RECIPE_VAR_steps:-300}" "${@:2}"; }
same() { # name, printed version
  [ "$2" = "$expected" ] || { printf '%s: version %q; expected %q\n' "$1" "$2" "$expected" >&2; exit 1; }
  printf '%s: ok\n' "$1"
}

mkdir "$folder/home" "$folder/archive"
tar -xzf "$release"/recipe_*.tar.gz -C "$folder/archive"
same archive "$(bare "$folder/archive" recipe version)"

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$release"/recipe_rl-*.whl
same wheel "$(bare "$folder/venv/bin" recipe version)"

for package in "$release"/*.deb; do
  [ -e "$package" ] || continue
  command -v dpkg-deb >/dev/null || { echo "deb: skipped, dpkg-deb is missing"; continue; }
  dpkg-deb -x "$package" "$folder/deb"
  same deb "$(bare "$folder/deb/usr/bin" recipe version)"
done
for package in "$release"/*.rpm; do
  [ -e "$package" ] || continue
  if ! command -v rpm2cpio >/dev/null || ! command -v cpio >/dev/null; then echo "rpm: skipped, rpm2cpio or cpio is missing"; continue; fi
  mkdir "$folder/rpm" && rpm2cpio "$package" | (cd "$folder/rpm" && cpio --quiet -id)
  same rpm "$(bare "$folder/rpm/usr/bin" recipe version)"
done

# The newest image is unpacked by its own manifest, and its program is run in its root file system where bubblewrap can make one.
if [ "$(go env GOOS)" = linux ]; then
  mkdir "$folder/image" "$folder/root"
  tar -xf "$release"/recipe_*_image.tar -C "$folder/image"
  python3 - "$folder/image" "$folder/root" <<'PYTHON'
import json, pathlib, sys, tarfile
image, root = map(pathlib.Path, sys.argv[1:])
blob = lambda d: image / "blobs" / d["digest"].replace(":", "/")
manifest = json.loads(blob(json.loads((image / "index.json").read_text())["manifests"][0]).read_text())
for layer in manifest["layers"]:
    with tarfile.open(blob(layer)) as t:
        t.extractall(root)
PYTHON
  if command -v bwrap >/dev/null && bwrap --ro-bind / / true 2>/dev/null; then
    same image "$(bwrap --unshare-all --bind "$folder/root" / --proc /proc --dev /dev --clearenv --setenv PATH /usr/bin --chdir /work recipe version)"
  else
    same "image, without its root file system" "$(bare "$folder/root/usr/bin" recipe version)"
  fi
fi

cd "$folder/home"
if bare "$folder/venv/bin" sh -c 'command -v go gcc cc' >"$folder/compilers"; then
  printf 'note: %s is in /usr/bin\n' "$(tr '\n' ' ' <"$folder/compilers")"
fi

bare "$folder/venv/bin" recipe demo | tail -n 12
bare "$folder/venv/bin" recipe output -r recipe-demo/quickstart.hcl checkpoint >/dev/null
echo "demo: ok"
