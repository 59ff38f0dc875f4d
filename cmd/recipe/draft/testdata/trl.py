"""A script of TRL's, which is read and never run."""
import re
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from peft import LoraConfig
from trl.rewards import think_format_reward

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
SYSTEM = "Answer with a number."
NUMBER = re.compile(r"-?\d+")


def last(text):
    found = NUMBER.findall(text)
    return found[-1] if found else None


def correct(completions, answer, **kwargs):
    return [float(last(c[0]["content"]) == a) for c, a in zip(completions, answer)]


def main():
    dataset = load_dataset("openai/gsm8k", "main", split="train")
    dataset = dataset.map(lambda row: {
        "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}],
        "answer": last(row["answer"]),
    })
    config = GRPOConfig(
        output_dir="out", learning_rate=1e-5, num_generations=8, max_completion_length=512,
        per_device_train_batch_size=16, gradient_accumulation_steps=4, beta=0.0, loss_type="dapo",
        use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.3, logging_steps=10, max_steps=200,
        temperature=0.9, save_steps=50, report_to="wandb", bf16=True, num_iterations=2,
    )
    trainer = GRPOTrainer(model=MODEL, args=config, train_dataset=dataset, reward_funcs=[correct, think_format_reward],
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    trainer.train()


if __name__ == "__main__":
    main()
