"""The environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recipe_sdk import Environment, InfraFailure, Policy, Score, Task, setting
from recipe_sdk.environment.policy import Chat

HELD_OUT = 1_000_000_000  # added to the seed


@dataclass
class Settings:
    game: str = setting(doc="Game of TextArena, such as TicTacToe-v0")
    players: int = setting(1, "How many play. The policy plays them all, each as an agent with its own groups", min=1)
    config: Any = setting(None, "Arguments of the game, such as { max_turns = 10 }")
    invalid_moves: int | None = setting(
        None, "How many invalid moves in a row a player is told of before it loses. Default: the game's own, 1", min=0
    )
    instructions: str = setting("", "System prompt. The game explains its rules by itself")
    seed: int = setting(0, "Task n is a game with this plus n, of which all rollouts of a group begin alike", min=0)
    eval_tasks: int = setting(64, "How many seeds that training does not reach are held out", min=1)


class TextArena(Environment):
    """Games of TextArena, of one player or several.

    The policy plays against itself: each player is an agent with a conversation and a reward of its own.
    docs/environments/textarena.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 128}
    reads = ("NLTK_DATA",)

    def setup(self) -> None:
        self._count = 0
        self._begin(self.settings.seed)  # no such game, a wrong argument or number of players

    def _begin(self, seed: int) -> Any:
        """A new game. Wrappers that repeat the whole game in each observation are left out: the chat holds it."""
        import textarena

        s = self.settings
        game = textarena.make(s.game + "-raw", **(s.config or {}))
        game.reset(num_players=s.players, seed=seed)
        if s.invalid_moves is not None:
            game.state.error_allowance = s.invalid_moves
        return game

    def next(self) -> Task:
        self._count += 1
        return Task(data=self.settings.seed + self._count - 1)

    def skip(self, count: int) -> None:
        self._count += count

    def held_out(self) -> list[Task]:
        return [Task(data=HELD_OUT + self.settings.seed + i) for i in range(self.settings.eval_tasks)]

    async def rollout(self, task: Task, policy: Policy) -> None:
        chats: dict[int, Chat] = {}
        invalid: dict[int, int] = {}  # moves of each player that the game refused
        # The games draw from the random numbers of the process: they are called in the event loop, one at a time.
        game = _call(self._begin, task.data)
        done = False
        while not done:
            player, observed = _call(game.get_observation)
            said = _text(game, player, observed)
            if player in chats:
                chats[player].say(said)
            else:
                system = self.settings.instructions
                start = [{"role": "system", "content": system}] if system else []
                agent = f"player-{player}" if self.settings.players > 1 else ""
                chats[player] = policy.chat([*start, {"role": "user", "content": said}], agent)
                invalid[player] = 0
            answer = await chats[player].answer()
            if answer.truncated and not answer.tokens:  # max_turns, or no room
                break
            told = game.state.error_count  # invalid moves in a row
            done, _ = _call(game.step, answer.text)
            invalid[player] += game.state.error_count > told or game.state.game_info[player]["invalid_move"]
        rewards = _call(game.close)[0] if done else {}
        for player, chat in chats.items():
            moves = {"moves": len(chat.completions), "invalid_actions": invalid[player]}
            chat.score(Score(rewards[player] if done else 0.0, moves))


def _text(game: Any, player: int, observed: Sequence[tuple[int, str, Any]]) -> str:
    """What a player reads: all that was said since its last turn, but not its own answer."""
    roles = game.state.role_mapping
    return "\n".join(
        message if sender < 0 else f"[{roles.get(sender, f'Player {sender}')}] {message}"
        for sender, message, _ in observed
        if sender != player
    )


def _call(method: Any, *args: Any) -> Any:
    """Calls a method of the game. What it raises is the environment's failure, never the model's."""
    try:
        return method(*args)
    except Exception as e:
        raise InfraFailure(f"{method.__qualname__}: {type(e).__name__}: {e}") from e
