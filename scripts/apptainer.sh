#!/bin/bash
# A real Apptainer for tests, without the parts that need root once installed.
#
#   scripts/apptainer.sh build          build it into the user's cache (four minutes of one core; once); prints its path
#   scripts/apptainer.sh image FILE     make an image of this machine's bash and coreutils; it sets IMAGE=recipe-test
#   scripts/apptainer.sh why            says what is missing here, and nothing when nothing is
set -euo pipefail

VERSION=1.3.6
SUM=h1:7ygTX53UCpBd/qHVFY/7LiEUu4v/lV/tl5KdCS7qz4I= # of the module's files, as in a go.sum
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recipe-apptainer/$VERSION
APPTAINER=$CACHE/bin/apptainer

why() {
  local program
  for program in cc make pkg-config mksquashfs squashfuse; do
    command -v $program >/dev/null ||
      { echo "$program is not installed: apt-get install build-essential pkg-config libseccomp-dev squashfs-tools squashfuse"; return; }
  done
}

build() {
  [ ! -x "$APPTAINER" ] || return 0
  local missing module=github.com/apptainer/apptainer source="$CACHE/source"
  missing=$(why)
  [ -z "$missing" ] || { echo "$missing" >&2; return 1; }
  mkdir -p "$CACHE"
  local found # the checksum database does not have the module, so its sum is compared here
  found=$(cd "$CACHE" && GONOSUMDB=$module GOFLAGS=-mod=mod go mod download -json "$module@v$VERSION")
  grep -qF "\"Sum\": \"$SUM\"" <<<"$found" || { echo "$module $VERSION has another sum than $SUM: $found" >&2; return 1; }
  rm -rf "$source"
  cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$found")" "$source"
  chmod -R u+w "$source"
  find "$source" \( -name '*.sh' -o -name mconfig -o -path '*/scripts/*' -o -path '*/makeit/*' \) -type f -exec chmod +x {} +
  # Its makefile empties Go's build cache: it gets one of its own.
  (cd "$source" && echo $VERSION >VERSION && export GOCACHE="$CACHE/go-build" GOFLAGS=-mod=mod &&
    nice -n 19 ./mconfig --without-suid --without-network --prefix="$CACHE" -V $VERSION &&
    nice -n 19 make -C builddir && make -C builddir install) >"$CACHE/build.log" 2>&1 ||
    { tail -20 "$CACHE/build.log" >&2; return 1; }
  rm -rf "$source" "$CACHE/go-build"
}

image() {
  build
  local folder
  folder=$(mktemp -d)
  trap "rm -rf '$folder'" RETURN
  cat >"$folder/definition" <<DEFINITION
Bootstrap: scratch
%setup
  for d in usr/bin etc proc sys dev tmp root home var/tmp; do mkdir -p "\$APPTAINER_ROOTFS/\$d"; done
  ln -s usr/bin "\$APPTAINER_ROOTFS/bin"
  touch "\$APPTAINER_ROOTFS/etc/passwd" "\$APPTAINER_ROOTFS/etc/group"
  for p in bash sh env id cat cut stat mkdir mktemp chmod mv rm sha256sum timeout; do
    cp -L "\$(command -v \$p)" "\$APPTAINER_ROOTFS/usr/bin/"
    ldd "\$(command -v \$p)" | grep -o '/[^ ]*' | while read -r l; do
      mkdir -p "\$APPTAINER_ROOTFS\$(dirname "\$l")"; cp -Ln "\$l" "\$APPTAINER_ROOTFS\$l"
    done
  done
%environment
  export IMAGE=recipe-test
DEFINITION
  "$APPTAINER" build --force "$1" "$folder/definition" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; return 1; }
}

case ${1-} in
  why) why ;;
  build) build; echo "$APPTAINER" ;;
  image) image "${2:?FILE}" ;;
  *) echo "usage: scripts/apptainer.sh build | image FILE | why" >&2; exit 2 ;;
esac
