"""What recipe adds to a vLLM worker, through --worker-extension-cls and /collective_rpc.

vLLM itself is not touched: this file lies in a folder of its own on PYTHONPATH. The versions of vLLM that it is run
under are in plugins/vllm/versions.go.
"""

import json
import os

import recipe_pull
from recipe_sdk.receive import handles as memory


def _tied(model):
    """(output head, embedding) of a model that ties them, else None."""
    head = getattr(model, "lm_head", None)
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    if not recipe_pull.tied(model) or head is None or embedding is None:
        return None
    return recipe_pull.bare(head), recipe_pull.bare(embedding)


def check_checkpoint(path):
    """Raise ValueError unless every file that the checkpoint at path names is there and complete.

    vLLM finds out half-way, when the model's parameters are already gone; its next request then kills the engine.
    """
    files = []
    index = os.path.join(path, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    elif os.path.isdir(path):
        files = sorted(f for f in os.listdir(path) if f.endswith(".safetensors"))
    if not files:
        raise ValueError(f"{path} holds no safetensors weights")
    for name in files:
        full = os.path.join(path, name)
        size = os.path.getsize(full)
        with open(full, "rb") as f:
            header_length = int.from_bytes(f.read(8), "little")
            if header_length <= 0 or header_length > size - 8:
                raise ValueError(f"{full} is not a complete safetensors file")
            header = json.loads(f.read(header_length))
        end = max((t["data_offsets"][1] for n, t in header.items() if n != "__metadata__"), default=0)
        if size != 8 + header_length + end:
            raise ValueError(f"{full} is cut short: {size} bytes, its header says {8 + header_length + end}")


class RecipeWorker:
    """Mixed into vLLM's worker. Arguments arrive as JSON values, results leave as dictionaries."""

    def recipe_reload(self, weights_path):
        """Load a checkpoint folder into the running model.

        The output head of a tied model is a case of its own on CPU: vLLM computes it from a packed copy that is made
        when that layer itself loads weights, which a tied head never does, so the old head would go on to be served.
        """
        check_checkpoint(weights_path)
        self.reload_weights(weights_path=weights_path)
        return self._recipe_head()

    def _recipe_head(self):
        """Pack the output head of a tied model again."""
        model = self.model_runner.get_model()
        tied = _tied(model)
        refreshed = False
        if tied is not None:
            head, embedding = tied
            if head.weight.data_ptr() != embedding.weight.data_ptr():
                head.weight = embedding.weight
                refreshed = True
            if hasattr(head, "cpu_linear"):
                head.quant_method.process_weights_after_loading(head)
                refreshed = True
        return {"tied": tied is not None, "head_refreshed": refreshed}

    def recipe_facts(self):
        """What decides how weights can arrive, and how exactly they compute."""
        return {
            "reach": memory.reach(),
            "machine": memory.machine(),
            "arithmetic": memory.arithmetic(self.model_runner.model_config.dtype),
            "device": getattr(getattr(self, "device", None), "type", ""),
        }

    def recipe_attach(self, handles):
        """Open a trainer's tensors, or the way to receive them; handles is the JSON text that it published. Those of an
        earlier trainer are let go."""
        import torch

        if (old := getattr(self, "_recipe_puller", None)) is not None:
            old.close()
        self._recipe_puller = old = None
        if torch.cuda.is_available():
            torch.cuda.ipc_collect()
        model = self.model_runner.get_model()
        packs = any(hasattr(m, "cpu_linear") for m in model.modules())
        mla = getattr(self.model_runner.model_config, "use_mla", False)  # keeps products of its weights
        try:
            self._recipe_puller = recipe_pull.Puller(
                model, json.loads(handles), direct=not packs and not mla, device=getattr(self, "device", None)
            )
        except recipe_pull.Refused as e:
            return {"refused": str(e)}
        return {"bytes": self._recipe_puller.bytes, "why": self._recipe_puller.why}

    def recipe_pull(self, key, version):
        """Copy a version from the tensors that were attached as key."""
        puller = getattr(self, "_recipe_puller", None)
        if puller is None or puller.handles["key"] != key:
            return {"unknown": True}
        try:
            told = puller.pull(int(version), lambda items: self.reload_weights(weights_iterator=items))
        except recipe_pull.Refused as e:
            return {"refused": str(e)}
        if told["path"] == "loader":
            self._recipe_head()
        return told

    def recipe_zero_adapter(self, path):
        """Write a LoRA adapter of rank 1 that changes nothing to the folder path, for one projection of the first
        layer."""
        import torch
        from safetensors.torch import save_file

        config = self.model_runner.get_model().config
        config = getattr(config, "text_config", None) or config
        heads = config.num_attention_heads
        head = getattr(config, "head_dim", None) or config.hidden_size // heads
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
        if getattr(self, "rank", 0) == 0:
            os.makedirs(path, exist_ok=True)
            save_file(
                {
                    name + "A.weight": torch.zeros(1, config.hidden_size),
                    name + "B.weight": torch.zeros(heads * head, 1),
                },
                os.path.join(path, "adapter_model.safetensors"),
            )
            with open(os.path.join(path, "adapter_config.json"), "w") as f:
                json.dump(
                    {
                        "peft_type": "LORA",
                        "task_type": "CAUSAL_LM",
                        "r": 1,
                        "lora_alpha": 1,
                        "target_modules": ["q_proj"],
                        "bias": "none",
                    },
                    f,
                )
        return {"path": path}
