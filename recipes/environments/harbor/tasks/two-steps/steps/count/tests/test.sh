#!/bin/sh
reward=0
[ "$(sh /app/count.sh /app/monday.log)" = 2 ] && reward=1
echo "$reward" >/logs/verifier/reward.txt
