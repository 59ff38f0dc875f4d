"""The same loop as loop.hcl by TRL's GRPOTrainer with vLLM colocated. Prints one JSON line when each optimizer step has
ended.

usage: trl_loop.py SETTINGS.json
"""

import json
import os
import random
import sys
import tempfile
import time

from trl_learn import free_port


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    # TRL's colocated vLLM wants the variables that a launcher sets.
    defaults = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**defaults, "MASTER_PORT": free_port()}.items():
        os.environ.setdefault(name, value)

    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    letters = "abcdefghijklmnopqrstuvwxyz     "
    rows = settings["steps"] * settings["prompts"]
    dataset = Dataset.from_list([{"prompt": "".join(random.choices(letters, k=64))} for _ in range(rows)])

    def scores(completions: list[str], **_: object) -> list[float]:
        return [random.random() for _ in completions]

    class Tell(TrainerCallback):
        def on_step_end(self, args, state, control, **_):  # noqa: ANN001, ARG002
            print(json.dumps({"step": state.global_step, "time": time.time()}), flush=True)

        def on_log(self, args, state, control, logs=None, **_):  # noqa: ANN001, ARG002
            numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, (int, float))}
            print(json.dumps({"metrics": numbers}), flush=True)

    peft = None
    if settings["lora_rank"]:
        from peft import LoraConfig

        peft = LoraConfig(r=settings["lora_rank"], lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    micro = settings.get("micro_batch", 8)
    batch = settings["prompts"] * settings["group_size"]
    more = {}
    if settings.get("gradient_checkpointing") is not None:
        more["gradient_checkpointing"] = settings["gradient_checkpointing"]
    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=batch // micro,
        num_generations=settings["group_size"],
        max_completion_length=settings["max_tokens"],
        max_steps=settings["steps"],
        learning_rate=3e-6,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=settings["memory"],
        vllm_max_model_length=settings["max_tokens"] + 256,
        model_init_kwargs={"dtype": settings["dtype"]},
        bf16=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        **more,
    )
    trainer = GRPOTrainer(
        model=settings["model"],
        reward_funcs=scores,
        args=arguments,
        train_dataset=dataset,
        peft_config=peft,
        callbacks=[Tell()],
    )
    trainer.train()
    import torch

    print(json.dumps({"peak_gib": torch.cuda.max_memory_allocated() / 2**30}), flush=True)


if __name__ == "__main__":
    main()
