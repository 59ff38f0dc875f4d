"""What the agents in this folder have in common: their arguments, and one tool, a shell in the working directory."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile

SECONDS = 120  # for one command
LETTERS = 16_000  # of its output

SYSTEM = "You solve tasks on a computer. Your working directory is your workspace. Run commands with the tool bash."


def arguments() -> argparse.Namespace:
    """The instruction, and agent_args of the recipe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", default=SYSTEM, help="the system prompt")
    parser.add_argument("instruction")
    return parser.parse_args()


def bash(command: str) -> str:
    """Run a command of bash in the working directory. Returns what it prints and its exit code.

    Args:
        command: The command.
    """
    with tempfile.TemporaryFile() as out:  # not a pipe: what the command leaves in the background may keep one open
        started = subprocess.Popen(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            ended = f"exit code {started.wait(SECONDS)}"
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            ended = f"ended after {SECONDS} seconds"
        out.seek(0)
        text = out.read(4 * LETTERS).decode(errors="replace")
    if len(text) > LETTERS:
        text = text[:LETTERS] + "\n[cut]"
    return f"{text}\n[{ended}]"
