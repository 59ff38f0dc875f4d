#!/usr/bin/env bash
# Look for known vulnerabilities: of the Go modules that the programs call (govulncheck), and of the Python packages that
# scripts/python pins (pip-audit). Exit code: 0 none is known; 1 some are; 2 none was found, but a database could not be
# reached or a tool did not run, which says nothing about what it would have found.
set -uo pipefail
cd "$(dirname "$0")/.."
GOVULNCHECK=golang.org/x/vuln/cmd/govulncheck@v1.9.0
PIP_AUDIT=2.10.1
python=${PYTHON:-python3}
found=() unknown=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# govulncheck exits with 3 for vulnerabilities, and with 1 for what kept it from looking.
for module in . plugins/nomad; do
  echo "== Go: $module"
  (cd "$module" && timeout 900 go run "$GOVULNCHECK" ./...) >"$work/out" 2>&1
  status=$?
  # go run exits with 1 for any status, which it prints.
  if [ $status != 0 ] && grep -q '^exit status 3$' "$work/out"; then status=3; fi
  case $status in
    0) tail -1 "$work/out" ;;
    3) cat "$work/out"; found+=("Go modules of $module") ;;
    *) tail -5 "$work/out"; unknown+=("Go modules of $module") ;;
  esac
done

tool=.cache/audit
if [ ! -x "$tool/bin/pip-audit" ]; then
  { "$python" -m venv "$tool" && "$tool/bin/pip" install -q "pip-audit==$PIP_AUDIT"; } >"$work/out" 2>&1 ||
    { tail -3 "$work/out"; rm -rf "$tool"; }
fi
for file in scripts/python/*.txt; do
  [[ $file == *.override.txt ]] && continue
  echo "== Python: $file"
  if [ ! -x "$tool/bin/pip-audit" ]; then unknown+=("$file"); continue; fi
  # What is pinned, and not what that asks for: resolving it takes gigabytes. Its answer is in JSON where it has one.
  sed -E 's/[[:space:]]*[;#].*//' "$file" | grep -E '==' >"$work/pins.txt" || { echo 'nothing is pinned'; continue; }
  rm -f "$work/answer.json"
  timeout 300 "$tool/bin/pip-audit" --no-deps --disable-pip --progress-spinner off -f json -o "$work/answer.json" \
    -r "$work/pins.txt" >"$work/out" 2>&1
  "$python" - "$work/answer.json" <<'PY'
import json, sys

try:
    packages = json.load(open(sys.argv[1]))["dependencies"]
except (OSError, ValueError, KeyError):
    sys.exit(2)
bad = [p for p in packages if p.get("vulns")]
for p in bad:
    print(p["name"], p["version"], ", ".join(v["id"] for v in p["vulns"]))
skipped = [p["name"] for p in packages if "skip_reason" in p]
if skipped:
    print("not known to the database:", ", ".join(skipped))
sys.exit(1 if bad else 2 if not packages or len(skipped) == len(packages) else 0)
PY
  case $? in
    0) echo 'none is known' ;;
    1) found+=("$file") ;;
    *) tail -3 "$work/out"; unknown+=("$file") ;;
  esac
done

echo
if [ ${#unknown[@]} -gt 0 ]; then printf 'NOT LOOKED UP, as a database or a tool could not be reached: %s\n' "${unknown[@]}"; fi
if [ ${#found[@]} -gt 0 ]; then printf 'VULNERABLE: %s\n' "${found[@]}"; exit 1; fi
if [ ${#unknown[@]} -gt 0 ]; then exit 2; fi
echo 'no vulnerability is known'
