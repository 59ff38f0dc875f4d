#!/bin/sh
# Tests the dashboard's page: its types, that the committed build is what its sources give, and its views in headless
# Chromium on a real run of the quickstart. CHROMIUM names the browser.
set -eu
cd "$(dirname "$0")/.."
CHROMIUM="${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}"
if [ -z "$CHROMIUM" ]; then
  echo "test-ui: no Chromium was found: install it (apt install chromium), or name it in CHROMIUM" >&2
  exit 1
fi
export CHROMIUM
kept="$(mktemp -d)"
trap 'rm -rf "$kept"' EXIT
cp -R engine/ui/built "$kept/built"
(cd engine/ui/page && npm ci --no-audit --no-fund && npm run -s check && npm run -s build)
diff -r "$kept/built" engine/ui/built || { echo "test-ui: engine/ui/built was not what engine/ui/page gives; it is now" >&2; exit 1; }
cd engine/ui/page
RECIPE="$PWD/../../../bin/recipe" node --test --test-timeout=900000 test/page.test.mjs
