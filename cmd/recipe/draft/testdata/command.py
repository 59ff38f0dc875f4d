# /// script
# dependencies = [
#     "trl[peft]>=1.9",
#     "math-verify",
# ]
# ///
"""A script whose settings come from its command line, as TRL's examples have it."""
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config
from trl.rewards import accuracy_reward

if __name__ == "__main__":
    parser = TrlParser((GRPOConfig, ModelConfig))
    training_args, model_args = parser.parse_args_and_config()
    train_dataset, eval_dataset = load_dataset("AI-MO/NuminaMath-TIR", split=["train[:5%]", "test[:5%]"])
    train_dataset = train_dataset.remove_columns(["messages"])
    eval_dataset = eval_dataset.remove_columns(["messages"])
    GRPOTrainer(
        model=model_args.model_name_or_path, args=training_args, reward_funcs=[accuracy_reward],
        train_dataset=train_dataset, eval_dataset=eval_dataset, peft_config=get_peft_config(model_args),
    ).train()
