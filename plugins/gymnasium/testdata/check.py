"""Plays toy_text with a policy that says what it is told to, and looks at the conversations and the rewards."""

import gymnasium
from gymnasium import spaces
from recipe_gymnasium.environment import Gymnasium
from recipe_gymnasium.text import chosen, plain
from recipe_sdk import InfraFailure
from recipe_sdk.testing import run


def play(answers, *, tasks=1, max_turns=30, held_out=False, skip=0, **settings):
    return run(
        Gymnasium, settings, answers=answers, tasks=tasks, rollouts=1, max_turns=max_turns, held_out=held_out, skip=skip
    )


lake = {"id": "FrozenLake-v1", "config": {"is_slippery": False}}
(got,) = play(["I go down.", "down", "not left but RIGHT", "right", "down", "right"], **lake)
said = got.conversations[""]
assert got.reward == 1 and len(got.completions[""]) == 6, got
assert said[0]["content"].endswith("left, down, right, up. Answer with one of them."), said
assert said[1]["content"] == "[S]FFF\nFHFH\nFFFH\nHFFG", said
assert said[3]["content"] == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG", said

(got,) = play(["right", "down"], **lake)  # into the hole
assert got.reward == 0 and len(got.completions[""]) == 2, got
(got,) = play(["right", "left"], max_turns=7, **lake)  # max_turns
assert got.reward == 0 and len(got.completions[""]) == 8, got
(got,) = play(["I wait", "dow"], max_turns=3, invalid_action_reward=-0.25, **lake)
assert got.reward == -0.75 and "The actions: left, down" in got.conversations[""][3]["content"], got
assert got.metrics[""] == {"invalid_actions": 3}, got
(got,) = play(["down", "I wait"], invalid_action="end", invalid_action_reward=-2, **lake)
assert got.reward == -2 and len(got.completions[""]) == 2, got
(got,) = play(["<a>down</a> right", "<a>up</a>, or"], max_turns=2, action_pattern="<a>(.*?)</a>", **lake)
assert "[F]HFH" in got.conversations[""][3]["content"] and "[S]FFF" in got.conversations[""][5]["content"], got

# The same seed is the same start; held-out seeds are others.
cards = [p.conversations[""][1]["content"] for p in play(["stick"], tasks=20, id="Blackjack-v1")]
assert cards == [p.conversations[""][1]["content"] for p in play(["stick"], tasks=20, id="Blackjack-v1")]
assert cards[0].startswith("your sum: ") and "\na usable ace: 0" in "".join(cards) and len(set(cards)) > 10, cards
later = play(["stick"], tasks=13, skip=7, id="Blackjack-v1")  # the place that a block goes on at
assert cards[7:] == [p.conversations[""][1]["content"] for p in later]
held = [p.conversations[""][1]["content"] for p in play(["stick"], tasks=20, held_out=True, id="Blackjack-v1")]
assert held != cards
assert {p.reward for p in play(["stick"], tasks=30, id="Blackjack-v1")} >= {-1, 1}
(got,) = play(["north"], max_turns=4, id="Taxi-v4", reward="last")
assert got.reward == -1 and "yellow" in got.conversations[""][1]["content"], got
(got,) = play(["right"], id="CliffWalking-v1")
assert got.reward < -100, got.reward


# The user's arguments of gymnasium.make win over ours, whatever they are called.
(got,) = play(["right", "down"], id="FrozenLake-v1", config={"is_slippery": False, "render_mode": "ansi"})
assert got.conversations[""][1]["content"].startswith("[S]FFF"), got
(got,) = play(["right"], max_turns=1, id="FrozenLake-v1", config={"is_slippery": False, "render_mode": None})
assert got.conversations[""][1]["content"] == "0", got


class Chosen(gymnasium.Env):
    """Takes arguments with the names of our own."""

    metadata = {"render_modes": ["ansi"]}
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def __init__(self, method="none", args=(), render_mode=None):
        if render_mode == "ansi" and method == "refused":
            raise ValueError("no picture with this method")
        self.method = method

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, float(self.method == "given"), True, False, {}

    def render(self):
        return self.method


gymnasium.register("Chosen-v0", entry_point=Chosen)
(got,) = play(["1"], id="Chosen-v0", config={"method": "given", "args": [1]})
assert got.reward == 1 and got.conversations[""][1]["content"] == "given", got
try:  # what a rollout would meet is met in setup
    play(["1"], id="Chosen-v0", config={"method": "refused"})
    raise AssertionError("an environment that cannot be made was played")
except ValueError as e:
    assert "no picture" in str(e), e


class Echo(gymnasium.Env):
    """Text in both directions, and a failure."""

    observation_space = action_space = spaces.Text(10)

    def reset(self, *, seed=None, options=None):
        return "say ok", {}

    def step(self, action):
        if action == "boom":
            raise OSError("the simulator is away")
        return "again", float(action == "ok"), action == "ok", False, {}


gymnasium.register("Echo-v0", Echo, disable_env_checker=True)
(got,) = play(["no", "ok"], id="Echo-v0")
assert got.reward == 1 and got.conversations[""][3]["content"] == "again", got
for kind, text, settings in (
    (InfraFailure, "the simulator is away", {"id": "Echo-v0"}),
    (ValueError, "only Discrete and Text", {"id": "Pendulum-v1"}),
    (ValueError, "has 4 actions, and actions has 2 names", {**lake, "actions": ["a", "b"]}),
):
    try:
        play(["boom"], **settings)
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"nothing failed; want {text}")

assert chosen("turn left, then 10", None, ["1", "10", "left"]) == 1
assert chosen("upper lefts", None, ["up", "left"]) is None
assert plain("a\x1b[34;1mR\x1b[0mb\n\x1b[43m \x1b[0m") == "aRb\n[ ]\n(R blue, [ ] yellow)"
