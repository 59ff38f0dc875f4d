"""trainer "axolotl": Axolotl's GRPO trainer on recipe's bridge. See docs/axolotl.md.

Plugin is what an Axolotl configuration names in `plugins`. It gives Axolotl no data set but a place holder, and its
trainer with recipe_sdk.trl.Bridged in front of it."""

from __future__ import annotations

from typing import Any

import torch
from axolotl.common.datasets import TrainDatasetMeta
from axolotl.integrations.base import BasePlugin


class Plugin(BasePlugin):
    """Hooks that Axolotl calls while it builds a trainer."""

    given: dict[str, Any] = {}  # keyword arguments of Bridged  # noqa: RUF012
    model: Any = None

    def load_datasets(self, cfg: Any, preprocess: bool = False) -> TrainDatasetMeta:
        """Samples come from the bridge."""
        from datasets import Dataset

        return TrainDatasetMeta(train_dataset=Dataset.from_dict({"prompt": [""]}), total_num_steps=cfg.max_steps)

    def post_model_load(self, cfg: Any, model: Any) -> None:
        """Axolotl gives a plugin's trainer class no model, so it is kept here."""
        Plugin.model = model

    def get_training_args(self, cfg: Any) -> dict[str, Any]:
        """Without a GPU accelerate joins ranks only when it is told to use CPUs, which no setting of Axolotl does."""
        return {} if torch.cuda.is_available() else {"use_cpu": True}

    def get_trainer_cls(self, cfg: Any) -> type:
        """Axolotl's own trainer for GRPO, on the bridge."""
        from axolotl.core.trainers.grpo.trainer import AxolotlGRPOTrainer
        from recipe_sdk.trl import Bridged

        class Trainer(Bridged, AxolotlGRPOTrainer):
            """AxolotlGRPOTrainer whose samples come from recipe."""

            def __init__(self, *given: Any, **more: Any):
                super().__init__(*given, model=Plugin.model, **Plugin.given, **more)

        return Trainer
