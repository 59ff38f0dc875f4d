#!/bin/sh
right=0
for line in east,4 north,15 south,12 west,9; do
  grep -qx "$line" /app/totals.csv 2>/dev/null && right=$((right + 1))
done
lines=$(cat /app/totals.csv 2>/dev/null | wc -l)
exact=0
if [ "$right" -eq 4 ] && [ "$lines" -eq 4 ] && sort -c /app/totals.csv; then exact=1; fi
printf '{"reward": %s, "lines": %s}\n' "$exact" "$right" >/logs/verifier/reward.json
