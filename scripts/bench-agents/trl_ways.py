"""TRL's own ways to train with tools, over the scripted model: the tool loop of GRPOTrainer, and the rollout worker of
its asynchronous trainer.

usage: trl_ways.py MODEL CONVERSATIONS STYLE OUT
"""

import asyncio
import importlib.metadata
import multiprocessing
import sys
import tempfile
from typing import Any

import agents
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

VERSION = importlib.metadata.version("trl")
ROUNDS = 100  # of tools


def no_reward(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def tool_loop(model: agents.Model, folder: str, prompts: list[Any]) -> list[list[tuple[list[int], list[bool]]]]:
    """GRPOTrainer. Of it, only the call of the engine is replaced."""
    with tempfile.TemporaryDirectory() as work:
        trainer = GRPOTrainer(
            model=folder, reward_funcs=no_reward, train_dataset=Dataset.from_dict({"prompt": prompts}),
            tools=list(agents.FUNCTIONS.values()),
            args=GRPOConfig(output_dir=work, use_cpu=True, report_to=[], num_generations=2, generation_batch_size=2,
                            per_device_train_batch_size=2, max_completion_length=1 << 14,
                            max_tool_calling_iterations=ROUNDS),
        )  # fmt: skip

        def generate(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], list[list[float]]]:
            outputs = [model.answer(ids)[0] for ids in prompt_ids]
            return outputs, [[-0.5] * len(ids) for ids in outputs]

        trainer._generate_single_turn = generate
        trainer._sync_tool_dicts, trainer._async_tool_dicts = [agents.FUNCTIONS] * len(prompts), [{}] * len(prompts)
        prompt_ids, completion_ids, mask, *_ = trainer._generate(prompts)
    return [
        [(p + c, [False] * len(p) + [bool(m) for m in own])]
        for p, c, own in zip(prompt_ids, completion_ids, mask, strict=True)
    ]


def worker(model: agents.Model, prompts: list[Any]) -> list[list[tuple[list[int], list[bool]]]]:
    """The rollout worker of the asynchronous trainer. Of it, only the call of the engine is replaced."""
    context = multiprocessing.get_context("spawn")
    metrics = context.Queue()
    metrics.cancel_join_thread()  # nothing reads it
    loop = _AsyncRolloutLoop(
        model_name="policy", dataset=Dataset.from_dict({"prompt": prompts}), reward_funcs=[no_reward],
        processing_class=model.tokenizer, eos_token_ids=[model.end], rollout_buffer=context.Queue(),
        model_version_value=context.Value("i", 0), heartbeat_value=context.Value("d", 0.0),
        failed_event=context.Event(), exception_info_queue=context.Queue(), metrics_queue=metrics,
        tools=list(agents.FUNCTIONS.values()),
    )  # fmt: skip

    async def generate(prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        output = model.answer(prompt_ids)[0]
        return output, [-0.5] * len(output)

    loop._generate_one_turn = generate
    rollouts = []

    async def run() -> None:
        for prompt in prompts:
            _, _, sequences, *_ = await loop._generate_one(prompt, agents.FUNCTIONS, list(agents.FUNCTIONS.values()))
            rollouts.append([parts(s) for s in sequences])

    asyncio.run(run())
    return rollouts


def parts(sequence: Any) -> tuple[list[int], list[bool]]:
    return list(sequence.input_ids), [bool(m) for m in sequence.completion_mask]


def main() -> None:
    folder, count, style, out = sys.argv[1:]
    prompts = [agents.first_messages(n) for n in range(int(count))]
    model = agents.Model(folder, style)
    agents.report(agents.compare(f"TRL {VERSION}, GRPOTrainer", model, tool_loop(model, folder, prompts)), out)
    model = agents.Model(folder, style)
    agents.report(agents.compare(f"TRL {VERSION}, AsyncGRPOTrainer", model, worker(model, prompts)), out)


if __name__ == "__main__":
    main()
