"""python -m recipe_verl --config FILE, or --check FILE: {"config": {…}, "backend": "fsdp2"}, mistakes as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from . import settings


def main() -> int:
    """0 completed, stopped or solved; 1 failed (the error event says why); 2 wrong configuration."""
    parser = argparse.ArgumentParser(prog="recipe_verl")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", help="JSON configuration file")
    group.add_argument("--check", metavar="FILE", help="print what is wrong with verl's settings, and exit")
    asked = parser.parse_args()
    with open(asked.config or asked.check, encoding="utf-8") as f:
        given = json.load(f)
    found = settings.mistakes(given.get("config") or {}, given["backend"])
    if asked.check:
        json.dump(found, sys.stdout)
        return 0
    if found := [m for m in found if not m.get("warning")]:  # the plan has shown the others
        print("the configuration is wrong:", file=sys.stderr)
        for m in found:
            print(f"  {'.'.join(m['path'])}: {m['summary']}. {m['detail']}", file=sys.stderr)
        return 2
    from .run import run

    run(asked.config, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
