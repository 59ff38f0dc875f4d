#!/usr/bin/env bash
# pictures.sh FOLDER: follows recipes/addition.hcl from start to end in both views and keeps what they show while it starts, in the
# middle, during a pause and at the end: the terminal as text in four widths, the page as PNG. docs/terminal.md and docs/ui.md show
# some of them. Needs tmux, Chromium, what make e2e and make test-ui install, and ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:?usage: scripts/pictures.sh FOLDER}")
mkdir -p "$folder"
export CHROMIUM="${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}"
export XDG_STATE_HOME="$folder/state" TERM=xterm-256color
scripts/venv.sh vllm
scripts/venv.sh atropos
scripts/model.sh
[ -x bin/recipe ] || make build

screen() { tmux -L "recipe-$$" "$@"; }
shown() { screen capture-pane -p -t 0; }
trap 'screen kill-server 2>/dev/null || true' EXIT

# until SECONDS PATTERN: waits until the terminal shows it.
until_shown() {
  for _ in $(seq "$1"); do
    if shown | grep -qE "$2"; then return; fi
    sleep 1
  done
  echo "pictures.sh: the terminal did not show $2 within $1 s:" >&2
  shown >&2
  exit 1
}

# take NAME VIEW…: what both views show now.
take() {
  local name=$1
  shift
  for size in 40x24 80x30 200x50 120x40; do
    screen resize-window -t 0 -x "${size%x*}" -y "${size#*x}"
    sleep 2 # the view follows, and asks the engine again
    shown >"$folder/$name-${size%x*}.txt"
  done
  (cd engine/ui/page && timeout 120 node test/pictures.mjs "$address" addition "$folder/$name" "$@")
}

screen -f /dev/null new-session -d -x 120 -y 40 "bin/recipe apply --auto-approve --ui recipes/addition.hcl; sleep 600"
until_shown 120 'running .* http://'
address=$(shown | grep -oE 'http://[^ ]+' | head -1)
until_shown 600 'inference.vllm.policy\[0\] +loading'
take start overview
until_shown 1200 'evaluating'
take evaluation overview logs
until_shown 1200 ' [5-9]/12 steps'
take middle overview curves samples timeline
screen send-keys -t 0 4 Enter
sleep 2
shown >"$folder/block-120.txt"
screen send-keys -t 0 Escape
sleep 1
screen send-keys -t 0 p y
until_shown 120 '^addition paused'
take paused overview timeline
sleep 120 # longer than the time after which a run without progress is looked at
shown >"$folder/paused-later-120.txt"
screen send-keys -t 0 p y
until_shown 30 '^addition running'
until_shown 600 ' (9|1[0-2])/12 steps'
take resumed overview
until_shown 1200 'What to try next'
screen resize-window -t 0 -x 120 -y 60
sleep 1
shown >"$folder/end-120.txt"
bin/recipe ui -r recipes/addition.hcl >"$folder/ui.txt" &
server=$!
trap 'kill "$server" 2>/dev/null || true; screen kill-server 2>/dev/null || true' EXIT
for _ in $(seq 30); do
  address=$(grep -oE 'http://[^ ]+' "$folder/ui.txt" || true)
  if [ -n "$address" ]; then break; fi
  sleep 1
done
(cd engine/ui/page && timeout 120 node test/pictures.mjs "$address" addition "$folder/end" overview curves samples timeline)
