#!/bin/sh
# The tests that the task had, and more, whatever became of those in /app.
cp /tests/cases.py /tmp/cases.py
cd /app && PYTHONPATH=/app python3 /tmp/cases.py >/logs/verifier/reward.json
