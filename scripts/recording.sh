#!/usr/bin/env bash
# recording.sh: makes the pictures of README anew, from a real run of `recipe demo`: the terminal as an animated SVG and the dashboard
# as PNG, light and dark, in docs/pictures. Needs tmux, Chromium and npm, and a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export CHROMIUM="${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}"
scripts/venv.sh site
[ -x bin/recipe ] || make build
[ -d engine/ui/page/node_modules ] || (cd engine/ui/page && npm ci --no-audit --no-fund)

folder=$(mktemp -d)
server=
screen() { tmux -L "recipe-$$" "$@"; }
trap 'kill $server 2>/dev/null || true; screen kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
export XDG_STATE_HOME="$folder/state" TERM=xterm-256color RECIPE_CONFIG="$folder/settings.hcl" PATH="$root/bin:$PATH"
: >"$RECIPE_CONFIG"
mkdir "$folder/run" "$folder/frames" "$folder/shots"
cd "$folder/run"

# A frame each half second, as text with colors.
take() { screen capture-pane -e -p -t 0 >"$folder/frames/$(printf %04d "$1").txt"; }
screen -f /dev/null new-session -d -x 100 -y 24 "PS1='$ ' bash --norc --noprofile"
frame=0
sleep 1
screen send-keys -t 0 'recipe demo'
take $frame
screen send-keys -t 0 Enter
for _ in $(seq 240); do
  frame=$((frame + 1))
  sleep 0.5
  take $frame
  if grep -q 'What to try next' "$folder/frames/$(printf %04d "$frame").txt"; then break; fi
done
grep -q 'What to try next' "$folder/frames/$(printf %04d "$frame").txt" || { echo "recording.sh: the demo did not end within two minutes" >&2; exit 1; }
sleep 1
take $((frame + 1))

recipe ui -r recipe-demo/quickstart.hcl >"$folder/ui.txt" &
server=$!
address=
for _ in $(seq 30); do
  address=$(grep -oE 'http://[^ ]+' "$folder/ui.txt" || true)
  [ -z "$address" ] || break
  sleep 1
done
(cd "$root/engine/ui/page" && timeout 120 node test/pictures.mjs "$address" quickstart "$folder/shots" curves)

mkdir -p "$root/docs/pictures"
for scheme in light dark; do
  "$root/.cache/venv-site/bin/python" "$root/scripts/site/frames.py" "$folder/frames" "$scheme" "$folder/run" >"$root/docs/pictures/demo-$scheme.svg"
  cp "$folder/shots/curves-$scheme-1280.png" "$root/docs/pictures/dashboard-$scheme.png"
done
ls -l "$root/docs/pictures"
