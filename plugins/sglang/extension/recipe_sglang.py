"""What recipe has SGLang's schedulers do, through --custom-weight-loader and the route for tensors.

SGLang itself is not touched: this file lies in a folder of its own on PYTHONPATH. A scheduler calls `call` between two
steps. An exception there would end the server, so none leaves it: every answer, also of a failure, is a file.
"""

import json
import os
import traceback

# What models fuse that do not say so themselves.
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}

_puller = None


def call(model, named_tensors):
    """Do what the name of the first tensor asks for, as JSON, and write the answer where it says."""
    reply = None
    try:
        request = json.loads(named_tensors[0][0])
        reply = f"{request['reply']}.{_worker()}"
        answer = DOES[request["do"]](model, request)
    except Exception:
        answer = {"error": traceback.format_exc(limit=-4)}
    try:
        with open(reply + ".part", "w") as f:
            json.dump(answer, f)
        os.rename(reply + ".part", reply)
    except Exception:
        traceback.print_exc()


def _worker():
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def facts(model, _request):
    """What decides how weights can arrive, and how exactly they compute."""
    from recipe_sdk.receive import handles

    parameter = next(model.parameters())
    return {
        "reach": handles.reach(),
        "machine": handles.machine(),
        "arithmetic": handles.arithmetic(parameter.dtype),
        "device": parameter.device.type,
    }


def attach(model, request):
    """Open a trainer's tensors, or the way to receive them. Those of an earlier trainer are let go."""
    global _puller
    import torch
    from recipe_sdk.receive.fused import fit
    from recipe_sdk.receive.handles import Refused
    from recipe_sdk.receive.puller import Puller

    if _puller is not None:
        _puller.close()
    _puller = None
    if torch.cuda.is_available():
        torch.cuda.ipc_collect()
    packed = getattr(model, "packed_modules_mapping", None) or PACKED
    try:
        _puller = Puller(
            json.loads(request["handles"]),
            lambda tensors: fit(model, tensors, packed, direct(model)),
            next(model.parameters()).device,
        )
    except Refused as e:
        return {"refused": str(e)}
    return {"bytes": _puller.bytes, "why": _puller.why}


def direct(model):
    """Whether parameters may be written in place: no layer keeps a packed copy, or products, of its weights."""
    return not any(
        getattr(m, "use_intel_amx_backend", False) or getattr(m, "w_kc", None) is not None for m in model.modules()
    )


def pull(model, request):
    """Copy a version from the tensors that were attached as key."""
    from recipe_sdk.receive.handles import Refused

    if _puller is None or _puller.handles["key"] != request["key"]:
        return {"unknown": True}
    try:
        return _puller.pull(request["version"], model.load_weights)
    except Refused as e:
        return {"refused": str(e)}


def zero_adapter(model, request):
    """Write a LoRA adapter of rank 1 that changes nothing to a folder, for one projection of the first layer."""
    import torch
    from safetensors.torch import save_file

    config = model.config
    config = getattr(config, "text_config", None) or config
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    # SGLang refuses an adapter of q_proj that has none of v_proj beside it: it fuses them.
    name, path = "base_model.model.model.layers.0.self_attn.o_proj.lora_", request["path"]
    if _worker() == 0:
        os.makedirs(path, exist_ok=True)
        tensors = {
            name + "A.weight": torch.zeros(1, heads * head),
            name + "B.weight": torch.zeros(config.hidden_size, 1),
        }
        save_file(tensors, os.path.join(path, "adapter_model.safetensors"))
        settings = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": 1,
            "lora_alpha": 1,
            "target_modules": ["o_proj"],
            "bias": "none",
        }
        with open(os.path.join(path, "adapter_config.json"), "w") as f:
            json.dump(settings, f)
    return {}


DOES = {"facts": facts, "attach": attach, "pull": pull, "zero_adapter": zero_adapter}
