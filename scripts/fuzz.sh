#!/usr/bin/env bash
# Run every fuzz target of the repository, one after the other, for FUZZ_EXECS executions each (default 10^6) on FUZZ_CORES cores.
# FUZZ_ONLY limits it to targets whose "package Function" matches an extended regular expression. FUZZ_SECONDS ends a target
# after so long, with as many executions as it has reached; fewer than FUZZ_SLOWEST (5) a second are a failure. A crasher is written to testdata/fuzz of its package: mend it, and
# keep the file as a seed.
set -euo pipefail
cd "$(dirname "$0")/.."
execs=${FUZZ_EXECS:-1000000}
cores=${FUZZ_CORES:-2}
only=${FUZZ_ONLY:-.}
limit=${FUZZ_SECONDS:-0}
slowest=${FUZZ_SLOWEST:-5}
failed=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz/$(go list -m)
# Coverage is compared after each execution, counter by counter: only what is under test is instrumented. With net/http, gRPC
# and the rest of what a package imports, comparing took 20 times as long as the execution.
flags=(-gcflags=all=-d=libfuzzer=0)
for instrumented in github.com/recipe-rl/recipe/... github.com/hashicorp/hcl/... encoding/json; do
  flags+=("-gcflags=$instrumented=-d=libfuzzer")
done
while read -r package target; do
  go test -c -o "$work/fuzz.test" "${flags[@]}" -fuzz "^$target\$" "$package"
  began=$(date +%s)
  if (cd "$package" && GOMAXPROCS=$cores timeout --preserve-status -s INT "$limit" "$work/fuzz.test" -test.run '^$' \
    -test.fuzz "^$target\$" -test.fuzzcachedir "$cache/$package" -test.fuzztime "${execs}x" -test.fuzzminimizetime 200x \
    -test.parallel "$cores" -test.timeout 0) >"$work/output" 2>&1; then
    result=ok
    # A target that hardly executes finds nothing: its input is too large, or each execution makes too much.
    reached=$(grep -oE 'execs: [0-9]+' "$work/output" | tail -1 | grep -oE '[0-9]+' || echo 0)
    if [ "$reached" -lt $((slowest * ($(date +%s) - began))) ]; then result=SLOW failed+=("$package $target"); fi
  else
    result=FAILED failed+=("$package $target")
  fi
  seconds=$(($(date +%s) - began))
  reached=$(grep -oE 'execs: [0-9]+' "$work/output" | tail -1 | grep -oE '[0-9]+' || echo 0)
  printf '%-6s %-32s %-20s %8s executions %6s s  %s/s\n' \
    "$result" "$package" "$target" "$reached" "$seconds" "$((reached / (seconds > 0 ? seconds : 1)))"
  if [ "$result" != ok ]; then tail -40 "$work/output"; fi
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9_]+' |
  sed -E 's#^(.*)/[^/]*:func (.*)#./\1 \2#' | sort -u | grep -E "$only")
if [ ${#failed[@]} -gt 0 ]; then
  printf '%s\n' "${#failed[@]} fuzz targets failed:" "${failed[@]}" >&2
  exit 1
fi
