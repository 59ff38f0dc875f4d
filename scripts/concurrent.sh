#!/usr/bin/env bash
# Print the packages for which the race detector pays (Makefile, test-go): they start goroutines, or guard their state and a test of theirs starts some.
# Two are left out: tests of cmd/recipe run the whole program, some thousand processes, whose packages are raced one by one; tests of schema compute.
set -euo pipefail
cd "$(dirname "$0")/.."
starts='^\s*go (func\b|[a-z][A-Za-z.]*\()|\.Go\('
packages() { grep -rlE --include='*.go' "$@" cmd engine internal plugins schema sdk | xargs dirname | sort -u; }
comm -12 <(packages --exclude='*_test.go' "$starts|\bsync\.(RW)?Mutex|\batomic\.") <(packages "$starts") |
  sed -E '\#^(cmd/recipe|schema)$#d; s|^|github.com/recipe-rl/recipe/|'
