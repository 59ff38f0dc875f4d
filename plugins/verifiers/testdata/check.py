"""Plays tasks with a policy that says what it is told to, and looks at the conversations and the rewards."""

import asyncio
import re
from unittest import mock

from recipe_sdk import InfraFailure, peer
from recipe_sdk.testing import run
from recipe_verifiers.endpoint import Endpoint, Unsupported
from recipe_verifiers.environment import Verifiers


def play(taskset, answers, *, max_turns=8, held_out=False, tasks=1, skip=0, **settings):
    return run(
        Verifiers,
        {"taskset": taskset, "path": "testdata/tasksets", "eval_tasks": 2, **settings},
        answers=answers,
        tasks=tasks,
        rollouts=1,
        max_tokens=1000,
        max_turns=max_turns,
        held_out=held_out,
        skip=skip,
    )


def fails(kind, text, *args, **more):
    try:
        got = play(*args, **more)
    except kind as e:
        assert text in str(e), f"{e}; want {text!r} in it"
    else:
        raise AssertionError(f"nothing failed: {[p.rewards for p in got]}; want {kind.__name__}: {text}")


def alphabet(messages):
    return messages[-1]["content"].partition("Say ")[2][0] * 2


# One turn: the rewards of the task, weighted; each task once, none of the held-out ones.
got = play("letters", alphabet, tasks=10)
assert {p.reward for p in got} == {2.5}, [p.rewards for p in got]
parts = {"reward/occurrences": 2, "reward/one": 1, "length": 2}
assert all(parts.items() <= p.metrics[""].items() for p in got), [p.metrics for p in got]
asked = [p.conversations[""] for p in got]
assert {c[1]["content"] for c in asked} == {f"Say {x}: " for x in "cdefghijkl"}, asked
assert all([m["role"] for m in c] == ["system", "user", "assistant"] for c in asked), asked
later = play("letters", alphabet, tasks=5, skip=5)  # the place that a block goes on at
assert [p.conversations[""] for p in later] == asked[5:], later
held = play("letters", alphabet, tasks=9, held_out=True)
assert [p.conversations[""][1]["content"] for p in held] == ["Say a: ", "Say b: "]
held = play("letters", alphabet, tasks=9, held_out=True, eval_config={"split": "test"})
assert [p.conversations[""][1]["content"] for p in held] == ["Say y: ", "Say z: "]

# Tasksets that cannot be loaded: a module is missing, none is installed, one of older versions.
fails(ModuleNotFoundError, "No module named 'no_such_module', which the taskset 'lacking' imports", "lacking", "a")
fails(ModuleNotFoundError, "the taskset 'leters' is not installed: name its package in runtime", "leters", "a")
fails(RuntimeError, "'older' has load_environment and no Taskset. Environments of versions before 0.4", "older", "a")
fails(ImportError, "does not import with the installed verifiers: cannot import name 'SingleTurnEnv'", "oldest", "a")
with (
    mock.patch("importlib.metadata.version", return_value="0.1.14"),
    mock.patch("importlib.util.find_spec", return_value=None),
):
    fails(RuntimeError, "needs verifiers 0.4 or later, and 0.1.14 is installed", "letters", "a")

# Tools: shown as text, called, and what is wrong with a call is told.
add = '<tool_call>\n{"name": "calculator_add", "arguments": {"a": 2, "b": %s}}\n</tool_call>'
(got,) = play("sums", ["Let me see. " + add % 3 + add % 40, "It is 5"])
said = got.conversations[""]
assert [m["role"] for m in said] == ["system", "user", "assistant", "user", "assistant"], said
assert '"calculator_add"' in said[0]["content"] and "Adds two numbers" in said[0]["content"], said
assert said[3]["content"] == "<tool_response>\n5\n</tool_response>\n<tool_response>\n42\n</tool_response>", said
wrong = ["<tool_call>{</tool_call><tool_call>[1]</tool_call>" + add.replace("_add", "_sub") % 1, "12, 5, 6, 7, 8, 9"]
(got,) = play("sums", [*wrong, "10, 11, 13, 14"])
errors = re.findall(r"error: (.*)", got.conversations[""][3]["content"])
assert len(errors) == 3 and "no valid JSON" in errors[0] and "there is no tool" in errors[2], errors

# Several turns, in the game that verifiers ships; a conversation that is full ends the game without a failure.
hangman = {"config": {"game": "Hangman-v0"}}
letters = [f"I try [{c}]" for c in "aelp"]
(got,) = play("textarena", letters, max_turns=20, **hangman)
said = got.conversations[""]
assert got.reward == 1, (got.rewards, said)
assert said[0]["role"] == "system" and "Hangman" in said[1]["content"] and said[3]["content"].startswith("C00"), said
(got,) = play("textarena", letters, max_turns=2, **hangman)
assert got.reward == 0 and len(got.completions[""]) == 3 and got.completions[""][2].truncated, got

# Several traces and agents.
(got,) = play("letters", ["c d e f g h i j k l", ""], env="best-of-n", env_config={"n": 2})
assert got.rewards == {"": 1.5, "agent-2": 0.5}, got.rewards
fails(Unsupported, "is not trained", "letters", alphabet, env="user-sim")

# What breaks is no low reward.
fails(InfraFailure, "the sandbox is away", "letters", alphabet, config={"fails": "setup"})
fails(InfraFailure, "the judge is on strike", "letters", alphabet, config={"fails": "reward"})
fails(InfraFailure, "scoring_timeout", "letters", alphabet, config={"fails": "slow"})
fails(Unsupported, "changed what was said", "forgetful", alphabet)


async def connected(*strangers):
    """What a client gets of the endpoint: the first line of an answer, or nothing."""
    endpoint = Endpoint()
    port = int((await endpoint.start()).split(":")[2].split("/")[0])
    with mock.patch.object(peer, "check", side_effect=[*strangers, None]):
        for stranger in (*strangers, None):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if not stranger:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            line = await reader.readline()
            writer.close()
            assert bool(line) != bool(stranger), f"{stranger}: the endpoint answers {line!r}"
    await endpoint.stop()


# Another user of the machine is not answered, and holds no connection open.
asyncio.run(connected(peer.StrangerError(), ConnectionResetError()))
