"""An OpenEnv environment: guess a number between 1 and 10 in four attempts, by "higher" and "lower".

python -m uvicorn guess:app --port 8000 serves it, for openenv.hcl or for anything else that speaks OpenEnv.
"""

import random
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

HIGHEST = 10
ATTEMPTS = 4


class Guess(Action):
    text: str


class Hint(Observation):
    hint: str = ""


class GuessEnvironment(Environment[Guess, Hint, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._number = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Hint:
        self._state = State(episode_id=episode_id)
        self._number = random.Random(seed).randint(1, HIGHEST)
        return Hint(
            hint=f"I think of a number between 1 and {HIGHEST}. Guess it: answer with one number and nothing else. "
            f"You have {ATTEMPTS} guesses."
        )

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Hint:
        self._state.step_count += 1
        left = ATTEMPTS - self._state.step_count
        digits = "".join(c if c.isdigit() else " " for c in action.text).split()
        if not digits:
            # A little less than a guess, so that the form is learned before the game.
            return Hint(hint="Answer with one number.", reward=-0.1, done=left == 0)
        guess = int(digits[0])
        if guess == self._number:
            return Hint(hint="That is it.", reward=1.0, done=True)
        hint = "higher" if self._number > guess else "lower"
        return Hint(hint=f"No, it is {hint}. {left} guesses left.", reward=0.0, done=left == 0)

    @property
    def state(self) -> State:
        return self._state


app = create_fastapi_app(GuessEnvironment, Guess, Hint, max_concurrent_envs=64)
