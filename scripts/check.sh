#!/usr/bin/env bash
# Check a change within about a minute: format, vet, and the tests of the packages that it touches and of those that import them, without the slow ones.
# The change is what differs from the branch that this one follows, or from the last commit. BASE=COMMIT takes another.
set -euo pipefail
cd "$(dirname "$0")/.."
base=${BASE:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)}
# These run whole programs or need Python: only when the change touches them, and the first of them only its scripts that have changed.
slow='/cmd/recipe$|/cmd/recipe/scaffold$|/e2e|/plugins/(atropos|axolotl|grpo|gymnasium|openenv|ors|reasoning_gym|reward|sglang|textarena|trl|verifiers|verl|vllm)$|/trajectories/conformance$'

mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u)
if [ ${#files[@]} -eq 0 ]; then
  echo "nothing differs from $base"
  exit 0
fi
folders=() python=() scripts=()
for f in "${files[@]}"; do
  case $f in
    cmd/recipe/testdata/script/*.txtar) scripts+=("$(basename "$f" .txtar)") ;;
    plugins/nomad/*) ;; # a module of its own
    *.go) folders+=("./$(dirname "$f")") ;;
    */testdata/*) folders+=("./${f%%/testdata/*}") ;;
    *.py) python+=("$f") ;;
  esac
done

failed=0
step() { # name, command…
  local from=$SECONDS
  echo "== $1"
  shift
  "$@" || failed=1
  echo "-- $((SECONDS - from)) s"
}

if [ ${#python[@]} -gt 0 ] && [ -x .cache/ruff/bin/ruff ]; then
  step "ruff of ${#python[@]} files" .cache/ruff/bin/ruff check "${python[@]}"
fi
if [ ${#folders[@]} -gt 0 ]; then
  unformatted=$(printf '%s\n' "${files[@]}" | grep '\.go$' | xargs -r gofmt -l)
  if [ -n "$unformatted" ]; then
    printf 'gofmt would change (run make fmt):\n%s\n' "$unformatted"
    failed=1
  fi
  mapfile -t touched < <(printf '%s\n' "${folders[@]}" | sort -u | xargs -r go list -e -f '{{if .GoFiles}}{{.ImportPath}}{{else if .TestGoFiles}}{{.ImportPath}}{{else if .XTestGoFiles}}{{.ImportPath}}{{end}}' 2>/dev/null | sed '/^$/d')
  step "vet of ${#touched[@]} packages" go vet "${touched[@]}"
  mapfile -t tested < <({
    printf '%s\n' "${touched[@]}"
    go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
      awk -v touched="${touched[*]}" 'BEGIN { n = split(touched, t); for (i = 1; i <= n; i++) is[t[i]] = 1 } { for (i = 2; i <= NF; i++) if ($i in is) { print $1; break } }' |
      { grep -vE "$slow" || true; }
  } | grep -vE '/cmd/recipe(/scaffold)?$' | sort -u)
  if [ ${#tested[@]} -gt 0 ]; then
    step "tests of ${#tested[@]} packages" go test -short -vet=off "${tested[@]}"
  fi
  step "tests that read the source" make --no-print-directory lint-structure
fi
if [ ${#scripts[@]} -gt 0 ]; then
  step "scripts: ${scripts[*]}" go test -vet=off ./cmd/recipe -run "TestScripts/^($(IFS='|'; echo "${scripts[*]}"))\$"
fi
[ "$failed" -eq 0 ] && echo 'no fault found; make lint and make test check everything'
exit "$failed"
