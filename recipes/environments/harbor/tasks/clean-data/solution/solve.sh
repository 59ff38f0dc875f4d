#!/bin/sh
cd /app
tr 'A-Z' 'a-z' <sales.csv | sed 's/ *, */,/g; s/^ *//; s/ *$//' | sort -u |
  awk -F, '$3 != "" { total[$1] += $3 } END { for (region in total) print region "," total[region] }' |
  sort >totals.csv
