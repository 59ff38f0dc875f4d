#!/bin/sh
reward=0
[ "$(sh /app/count.sh /app/monday.log /app/tuesday.log)" = 3 ] && [ "$(sh /app/count.sh /app/tuesday.log)" = 1 ] && reward=1
echo "$reward" >/logs/verifier/reward.txt
