#!/bin/sh
from=$(mktemp -d)
to=$(mktemp -d)
echo 1 >"$from/plain.txt"
echo 2 >"$from/two words.txt"
echo 3 >"$from/  blanks  "
sh /app/backup.sh "$from" "$to"
reward=0
if [ "$(ls "$to" | wc -l)" -eq 3 ] && cmp -s "$from/plain.txt" "$to/plain.txt.bak" &&
  cmp -s "$from/two words.txt" "$to/two words.txt.bak" && cmp -s "$from/  blanks  " "$to/  blanks  .bak"; then
  reward=1
fi
echo "$reward" >/logs/verifier/reward.txt
