"""An Atropos environment on an unmodified atroposlib: everything but the sampling is the library's own code.

It makes groups whose tokens say which prompt they belong to, so that a trainer can tell whether each arrived once.
"""

import random
from typing import Any, List, Optional, Tuple

from atroposlib.envs.base import (
    APIServerConfig,
    BaseEnv,
    BaseEnvConfig,
    ScoredDataGroup,
)


class MarksEnv(BaseEnv):
    name = "marks"

    @classmethod
    def config_init(cls) -> Tuple[BaseEnvConfig, List[APIServerConfig]]:
        config = BaseEnvConfig(
            group_size=4, use_wandb=False, max_token_length=64, wandb_name="marks"
        )
        server = APIServerConfig(
            model_name="none",
            base_url="http://127.0.0.1:9/v1",
            api_key="x",
            health_check=False,
        )
        return config, [server]

    async def setup(self) -> None:
        self.mark = 0

    async def get_next_item(self) -> int:
        self.mark += 1
        return self.mark

    async def collect_trajectories(
        self, item: int
    ) -> Tuple[Optional[ScoredDataGroup], List[Any]]:
        length = random.randint(3, 60)
        body = [random.randint(3, 99) for _ in range(length)]
        tokens = [[item % 100, i, *body] for i in range(self.config.group_size)]
        group = ScoredDataGroup(
            tokens=tokens,
            masks=[[-100, -100, *t[2:]] for t in tokens],
            scores=[float(i) for i in range(len(tokens))],
            inference_logprobs=[[1.0, 1.0, *([-0.5] * length)] for _ in tokens],
        )
        return group, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        return None


if __name__ == "__main__":
    MarksEnv.cli()
