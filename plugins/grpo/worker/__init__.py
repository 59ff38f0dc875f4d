"""The GRPO trainer worker: takes groups of scored completions, trains a policy, publishes its weights.

Started by a supervisor as `python -m worker --config FILE`.
docs/trainer-protocol.md describes everything it says and hears.
"""
