"""An environment of Atropos, which is read and never run."""

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig

raise SystemExit("this file was run")

class Words(BaseEnv):
    @classmethod
    def config_init(cls):
        env = BaseEnvConfig(
            tokenizer_name="NousResearch/Hermes-3-Llama-3.2-3B",
            group_size=16,
            batch_size=32,
            max_token_length=64,
            total_steps=1000,
            steps_per_eval=50,
            use_wandb=True,
            rollout_server_url="http://localhost:8000",
        )
        return env, [APIServerConfig(model_name="policy", base_url="http://localhost:9001/v1")]


if __name__ == "__main__":
    Words.cli()
