#!/bin/bash
# A real store with Amazon's S3 interface for tests: Versity's gateway before a folder.
#
#   scripts/s3.sh build               build it into the user's cache (two minutes of one core; once); prints its path
#   scripts/s3.sh serve FOLDER PORT   serve the folders of FOLDER as buckets on this machine alone, keys in AWS_…
set -euo pipefail

VERSION=1.8.0
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/recipe-s3/$VERSION

build() {
  [ ! -x "$CACHE/versitygw" ] || return 0
  mkdir -p "$CACHE"
  (cd "$CACHE" && GOBIN=$CACHE CGO_ENABLED=0 GOFLAGS=-p=1 nice -n 19 go install \
    "github.com/versity/versitygw/cmd/versitygw@v$VERSION" >&2)
}

serve() {
  build
  ROOT_ACCESS_KEY=${AWS_ACCESS_KEY_ID:?} ROOT_SECRET_KEY=${AWS_SECRET_ACCESS_KEY:?} \
    exec "$CACHE/versitygw" --port "127.0.0.1:$2" --region us-east-1 posix "$1"
}

case ${1-} in
  build) build; echo "$CACHE/versitygw" ;;
  serve) serve "${2:?FOLDER}" "${3:?PORT}" ;;
  *) echo "usage: scripts/s3.sh build | serve FOLDER PORT" >&2; exit 2 ;;
esac
