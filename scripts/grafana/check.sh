#!/bin/sh
# Checks docs/grafana/recipe.json against the types that Grafana publishes for dashboards (@grafana/schema), and its
# queries with Prometheus's parser.
set -eu
cd "$(dirname "$0")"
npm ci --no-audit --no-fund --ignore-scripts --silent
trap 'rm -f dashboard.ts' EXIT
{
  echo 'import type { Dashboard } from "@grafana/schema";'
  printf 'export const dashboard: Dashboard = '
  cat ../../docs/grafana/recipe.json
} >dashboard.ts
npx tsc --noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext --target es2022 dashboard.ts
go test -count 1 ./...
