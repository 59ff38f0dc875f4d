"""The task of learn.hcl learned by TRL's GRPOTrainer with vLLM colocated. Prints a JSON line after each optimizer step,
and one for each evaluation on the held-out questions.

usage: trl_learn.py SETTINGS.json
"""

import json
import os
import re
import socket
import sys
import tempfile
import time

HELD_OUT = 1_000_000_000  # the seed of held-out questions in plugins/reasoning_gym
SIZE = 1_000_000


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    # TRL's colocated vLLM wants the variables that a launcher sets.
    defaults = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**defaults, "MASTER_PORT": free_port()}.items():
        os.environ.setdefault(name, value)

    from datasets import Dataset
    from reasoning_gym import create_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    def questions(seed: int):  # noqa: ANN202
        return create_dataset(settings["dataset"], **{**settings["dataset_config"], "seed": seed, "size": SIZE})

    train, held = questions(settings["seed"]), questions(HELD_OUT)
    template, pattern = settings["prompt_template"], re.compile(settings["answer_pattern"], re.DOTALL)

    def prompt(entry: dict) -> str:
        return template.replace("{question}", entry["question"].strip())

    def score(text: str, entry: dict) -> float:
        found = list(pattern.finditer(text))
        return float(train.score_answer(found[-1][1] if found else None, entry))

    kept = [held[i] for i in range(settings["held_out"])]
    known = {entry["question"] for entry in kept}
    wanted = settings["steps"] * settings["prompts"]
    rows = [i for i in range(2 * wanted) if train[i]["question"] not in known][:wanted]
    dataset = Dataset.from_list([{"prompt": prompt(train[i]), "entry": i} for i in rows])

    def scores(completions: list[str], entry: list[int], **_: object) -> list[float]:
        return [score(text, train[i]) for text, i in zip(completions, entry, strict=True)]

    class Tell(TrainerCallback):
        def on_step_end(self, args, state, control, **_):  # noqa: ANN001, ARG002
            print(json.dumps({"step": state.global_step, "time": time.time()}), flush=True)
            if (state.global_step - 1) % settings["evaluate_every"] == 0:
                # What vLLM holds now are the weights of before this step.
                found = {"accuracy": accuracy(), "version": state.global_step - 1}
                print(json.dumps(found), flush=True)
                control.should_training_stop = found["accuracy"] >= settings["target"]

        def on_log(self, args, state, control, logs=None, **_):  # noqa: ANN001, ARG002
            numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, (int, float))}
            print(json.dumps({"metrics": numbers}), flush=True)

    peft = None
    if settings["lora_rank"]:
        from peft import LoraConfig

        peft = LoraConfig(r=settings["lora_rank"], lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    batch = settings["prompts"] * settings["group_size"]
    trainer = GRPOTrainer(
        model=settings["model"],
        reward_funcs=scores,
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=settings["micro_batch"],
            gradient_accumulation_steps=batch // settings["micro_batch"],
            num_generations=settings["group_size"],
            max_completion_length=settings["max_tokens"],
            max_steps=settings["steps"],
            learning_rate=settings["learning_rate"],
            lr_scheduler_type="constant",
            shuffle_dataset=False,
            seed=settings["seed"],
            use_vllm=True,
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=settings["memory"],
            vllm_max_model_length=256,
            model_init_kwargs={"dtype": "bfloat16" if settings["lora_rank"] else "float32"},
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=dataset,
        peft_config=peft,
        callbacks=[Tell()],
    )

    def accuracy() -> float:
        """Of greedy answers to the held-out questions."""
        from vllm import SamplingParams

        ids = [{"prompt_token_ids": trainer.processing_class(prompt(entry))["input_ids"]} for entry in kept]
        greedy = SamplingParams(temperature=0, max_tokens=settings["max_tokens"])
        answers = trainer.vllm_generation.llm.generate(ids, sampling_params=greedy, use_tqdm=False)
        return sum(score(a.outputs[0].text, e) for a, e in zip(answers, kept, strict=True)) / len(kept)

    trainer.train()


if __name__ == "__main__":
    main()
