#!/bin/sh
# The answer is in answer.txt, where the agent has written it.
reward=0
case "$(cat /app/answer.txt 2>/dev/null)" in
3*) reward=1 ;;
*[0-9]*) reward=0.25 ;;
esac
echo "$reward" >/logs/verifier/reward.txt
