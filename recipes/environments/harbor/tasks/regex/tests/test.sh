#!/bin/sh
total=0
right=0
pattern=$(head -n 1 /app/pattern.txt 2>/dev/null)
try() {
  total=$((total + 1))
  if printf '%s\n' "$2" | grep -qxE -e "$pattern" 2>/dev/null; then got=yes; else got=no; fi
  [ "$got" = "$1" ] && right=$((right + 1))
}
for time in 00:00 09:59 10:30 19:05 20:20 23:59; do try yes "$time"; done
for other in 24:00 23:60 7:15 007:15 12:3 12-30 12:300 "" ab:cd; do try no "$other"; done
reward=0
[ -n "$pattern" ] && [ "$right" -eq "$total" ] && reward=1
echo "$reward" >/logs/verifier/reward.txt
