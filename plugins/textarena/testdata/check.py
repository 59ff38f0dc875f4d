"""Plays games with a policy that says what it is told to, and looks at the conversations and the rewards."""

from recipe_sdk import InfraFailure
from recipe_sdk.testing import run
from recipe_textarena.environment import TextArena


def play(answers, *, tasks=1, max_turns=30, held_out=False, skip=0, **settings):
    return run(
        TextArena, settings, answers=answers, tasks=tasks, rollouts=1, max_turns=max_turns, held_out=held_out, skip=skip
    )


# Two players: a row of three against it; each reads what the other did, and not what it said itself.
tic = {"game": "TicTacToe-v0", "players": 2}
(got,) = play(["I take [0]", "[3]", "[1]", "[4]", "[2]"], **tic)
assert got.rewards == {"player-0": 1, "player-1": -1}, got.rewards
first, second = got.conversations["player-0"], got.conversations["player-1"]
assert [m["role"] for m in first] == ["user", "assistant"] * 3 and len(second) == 4, (first, second)
assert "You are Player 0" in first[0]["content"] and "'[0]', '[1]'" in first[0]["content"], first
assert "You are Player 1" in second[0]["content"] and "[Player 0] I take [0]" in second[0]["content"], second
assert "[Player 1] [3]" in first[2]["content"] and "I take" not in first[2]["content"], first
assert "You are Player 0" not in first[2]["content"], first

# An invalid move is told, then it loses the game.
(got,) = play(["[0]", "[0]", "[9]"], **tic)
assert got.rewards == {"player-0": 1, "player-1": -1}, got.rewards
assert "attempted an invalid move" in got.conversations["player-1"][2]["content"], got
assert got.metrics["player-0"] == {"moves": 1, "invalid_actions": 0}, got.metrics
assert got.metrics["player-1"] == {"moves": 2, "invalid_actions": 2}, got.metrics
(got,) = play(["[0]", "[0]", "[9]", "x", "[1]", "[2]", "[4]", "[5]", "[8]"], invalid_moves=3, **tic)
assert got.rewards == {"player-0": -1, "player-1": 1} and len(got.completions["player-1"]) == 6, got.rewards
(got,) = play(["x"], invalid_moves=1000, max_turns=4, **tic)
assert got.rewards == {"player-0": 0}, got.rewards

# One player, with chance: the same seed is the same game, held-out seeds are others.
guess = {"game": "GuessTheNumber-v0", "config": {"max_turns": 20}}


def bisect(messages):
    low, high = 1, 20
    for said, heard in zip(messages[1::2], messages[2::2]):
        number = int(said["content"][1:-1])
        low, high = (low, number - 1) if "lower" in heard["content"] else (number + 1, high)
    return f"[{(low + high) // 2}]"


got = play(bisect, tasks=12, **guess)
assert {p.reward for p in got} == {1}, [p.rewards for p in got]
turns = [[c.text for c in p.completions[""]] for p in got]
assert len({str(t) for t in turns}) > 4, turns
assert turns == [[c.text for c in p.completions[""]] for p in play(bisect, tasks=12, **guess)]
assert turns[2:] == [[c.text for c in p.completions[""]] for p in play(bisect, tasks=10, seed=2, **guess)]
later = play(bisect, tasks=5, skip=7, **guess)  # the place that a block goes on at
assert turns[7:] == [[c.text for c in p.completions[""]] for p in later]
held = [[c.text for c in p.completions[""]] for p in play(bisect, tasks=12, held_out=True, **guess)]
assert held != turns
(got,) = play(["[5]"], instructions="Be brief.", **guess)
assert got.conversations[""][0] == {"role": "system", "content": "Be brief."} and got.reward < 1, got

from textarena.envs.TicTacToe.env import TicTacToeEnv  # noqa: E402 - played unchanged above

TicTacToeEnv.step = lambda self, action: 1 / 0
try:
    play(["[0]"], **tic)
except InfraFailure as e:
    assert "ZeroDivisionError" in str(e), e
else:
    raise AssertionError("a game that breaks is no failure")
