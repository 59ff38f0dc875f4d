#!/usr/bin/env bash
# Print the packages that start goroutines, or guard their state against those of others: the race detector pays for these (Makefile, test-go).
set -euo pipefail
cd "$(dirname "$0")/.."
grep -rlE --include='*.go' --exclude='*_test.go' '^\s*go (func\b|[a-z][A-Za-z.]*\()|\.Go\(|\bsync\.(RW)?Mutex|\batomic\.' cmd engine internal plugins schema sdk |
  xargs dirname | sort -u | sed 's|^|github.com/recipe-rl/recipe/|'
