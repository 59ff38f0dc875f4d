#!/usr/bin/env bash
# conformance.sh: prove that recipe's trajectory API can stand in for Atropos's run-api.
#   1. the black-box suite against the original and against recipe's server,
#   2. atroposlib's own API tests with nothing but their launch line replaced,
#   3. an unmodified atroposlib environment and the example trainer's calls through recipe's server.
# It needs Python 3.10 or newer; atroposlib is installed into .cache/venv-atropos when it is not there.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/plugins/trajectories/conformance
venv=$root/.cache/venv-atropos

# The original's tests use port 8000 and nothing else. Where the system allows it, all of this runs in a network of its
# own, so that neither a server of yours nor this script gets in the other's way.
if [ -z "${CONFORMANCE_INSIDE:-}" ]; then
  if [ ! -x "$venv/bin/python" ]; then
    if [ -r "$root/scripts/python/atropos.txt" ]; then "$root/scripts/venv.sh" atropos; else
      python3 -m venv "$venv" && "$venv/bin/pip" install -q atroposlib==0.4.0 pytest; fi
  fi
  "$venv/bin/python" -c 'import pytest' 2>/dev/null || "$venv/bin/python" -m pip install -q pytest ||
    { uv=$(command -v uv || ls "$root"/.cache/uv-*/bin/uv | tail -1) && "$uv" pip install -q --python "$venv/bin/python" pytest; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$root" && go build -o "$work/runapi" ./plugins/trajectories/runapi && go test -c -o "$work/suite" ./plugins/trajectories/conformance && go test -c -o "$work/deployments" ./e2e)
  export CONFORMANCE_INSIDE=1 CONFORMANCE_WORK=$work
  if unshare -rn true 2>/dev/null && command -v ip >/dev/null; then
    unshare -rn bash -c "ip link set lo up; exec '$0'"
  else
    "$0"
  fi
  exit
fi

work=$CONFORMANCE_WORK
python=$venv/bin/python
pids=()
stop() { for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; wait "$p" 2>/dev/null || true; done; pids=(); }
trap stop EXIT

ready() { # URL: wait until a server answers, at most 30 s
  for _ in $(seq 300); do
    if "$python" - "$1" <<'PY' 2>/dev/null; then return; fi
import sys, urllib.request
urllib.request.urlopen(sys.argv[1] + "/info", timeout=1)
PY
    sleep 0.1
  done
  echo "conformance.sh: no server answered at $1 within 30 s" >&2
  exit 1
}

echo "== the suite against the original"
"$python" -m atroposlib.cli.run_api --host 127.0.0.1 --port 8000 >"$work/original.log" 2>&1 & pids+=($!)
ready http://127.0.0.1:8000
TRAJECTORIES_URL=http://127.0.0.1:8000 "$work/suite" -test.run TestOther

echo "== recipe's own environment and trainer on the original"
ORIGINAL_RUN_API=http://127.0.0.1:8000 "$work/deployments" -test.run 'TestAnyDeployment.*/run-api'
stop

echo "== the suite against recipe"
"$work/runapi" --port 8000 --dir "$work/store" & pids+=($!)
ready http://127.0.0.1:8000
TRAJECTORIES_URL=http://127.0.0.1:8000 TRAJECTORIES_PROMISES=1 "$work/suite" -test.run TestOther
stop

echo "== atroposlib's own API tests, their launch line replaced"
tests=$("$python" -c 'import atroposlib, os; print(os.path.join(os.path.dirname(atroposlib.__file__), "tests"))')
mkdir -p "$work/tests"
cp "$tests"/test_api_*.py "$tests"/api_test_utils.py "$work/tests/"
"$python" - "$work/tests" "$work/runapi" <<'PY'
import pathlib, re, sys
folder, server = pathlib.Path(sys.argv[1]), sys.argv[2]
launch = re.compile(r'sys\.executable,\s*"-m",\s*"atroposlib\.cli\.run_api",')
for file in folder.glob("*.py"):
    text, n = launch.subn(f'"{server}",', file.read_text())
    text = text.replace("from atroposlib.tests.api_test_utils", "from api_test_utils")
    print(f"{file.name}: {n} launch line(s) replaced")
    file.write_text(text)
PY
(cd "$work/tests" && PYTHONPATH=. "$python" -m pytest -q -p no:cacheprovider test_api_legacy.py test_api_compression.py test_api_messages_handling.py)

echo "== an unmodified environment and the example trainer's calls"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 WANDB_MODE=disabled
"$python" "$here/python/tokenizer.py" "$work/tokenizer"
"$work/runapi" --port 8000 --dir "$work/store2" & pids+=($!)
ready http://127.0.0.1:8000
"$python" "$here/python/example_trainer.py" http://127.0.0.1:8000 5 & trainer=$!
"$python" "$here/python/marks_env.py" serve --slurm false --env.rollout_server_url http://127.0.0.1:8000 --env.tokenizer_name "$work/tokenizer" \
  --env.use_wandb false --env.total_steps=-1 --openai.api_key x >"$work/env.log" 2>&1 & env=$!
pids+=("$env")
wait "$trainer" || { echo "the trainer failed; the environment's log ends with:"; tail -20 "$work/env.log"; exit 1; }
for _ in $(seq 300); do kill -0 "$env" 2>/dev/null || break; sleep 0.1; done
kill -0 "$env" 2>/dev/null && { echo "the environment did not end by itself"; tail -20 "$work/env.log"; exit 1; }
wait "$env" || { echo "the environment failed:"; tail -20 "$work/env.log"; exit 1; }
echo "all conformance checks passed"
