"""A game: state, action, reward. The model looks for a number, is told higher or lower, and earns more the sooner it
finds it.

The shape of anything that is played or steered over several turns: the environment keeps the state, each turn of the
model is an action, the answer to it is an observation that is not trained on, and the reward comes at the end. A robot
or a simulator stands where `play` is: what it observes has to become text.
"""

import random
import re
from typing import List, Tuple

from addition import Addition, AdditionConfig
from conversations import Conversations, carry
from pydantic import Field

RULES = "Find a number from 1 to {largest}. Each turn write one guess and a full stop; you are told higher or lower.\n"


class GameConfig(AdditionConfig):
    max_turns: int = Field(default=6, description="Guesses of one game")
    max_new_tokens: int = Field(default=4, description="Tokens of one guess")
    eval_temperature: float = Field(default=0.0, description="Temperature of evaluation; 0: greedy")
    largest: int = Field(default=16, description="Largest number")


def play(secret: int, action: str) -> Tuple[str, bool]:
    """One action: what is observed, and whether the game is over."""
    found = re.search(r"\d+", action)
    if found is None:
        return "that is no number", False
    guess = int(found[0])
    if guess == secret:
        return "found", True
    return ("higher" if guess < secret else "lower"), False


class Game(Conversations, Addition):
    name = "game"
    env_config_cls = GameConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        given = config.model_dump(exclude={"max_new_tokens"})
        return GameConfig(**{**given, "wandb_name": "game", "max_token_length": 256}), servers

    async def get_next_item(self) -> Tuple[int, int]:
        return self.random.randint(1, self.config.largest), 0

    def held_out(self) -> List[Tuple[int, int]]:
        rng = random.Random(1)  # the same numbers each time
        return [(rng.randint(1, self.config.largest), 0) for _ in range(16)]

    async def conversation(self, item, temperature: float, split: str = "train"):
        """One game: its tokens, its reward, and how many turns it took."""
        text, node, reward, turn = RULES.format(largest=self.config.largest) + "Guess: ", None, 0.0, 0
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            while turn < self.config.max_turns:
                turn += 1
                reply = await managed.completion(
                    prompt=text,
                    n=1,
                    max_tokens=self.config.max_new_tokens,
                    temperature=temperature,
                    stop=["."],
                    split=split,
                )
                node = carry(node, managed.get_state()["nodes"][-1])
                observation, over = play(item[0], reply.choices[0].text)
                if over:
                    reward = 1.0 - (turn - 1) / self.config.max_turns
                    break
                text = f"{node.full_text} ({observation})\nGuess: "
        return node, reward, turn


if __name__ == "__main__":
    Game.cli()
