from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
import helpers
import os

raise SystemExit("this file was run")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
trainer = GRPOTrainer(
    model,
    [helpers.length, lambda completions, **kwargs: [0.0] * len(completions), "some/reward-model"],
    GRPOConfig(learning_rate=float(os.environ["LR"]), loss_type="dr_grpo", max_prompt_length=100,
               max_completion_length=200, num_generations=4,
               per_device_train_batch_size=2 * 4, vllm_max_model_length=None),
    load_dataset("trl-lib/tldr", split="train[:1000]"),
    eval_dataset=None,
    callbacks=[object()],
)
trainer.train()
