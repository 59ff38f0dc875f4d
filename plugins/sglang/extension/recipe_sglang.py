"""What recipe has SGLang's schedulers do, through --custom-weight-loader and the route for tensors.

SGLang itself is not touched: this file lies in a folder of its own on PYTHONPATH. A scheduler calls `call` between two
steps. An exception there would end the server, so none leaves it: every answer, also of a failure, is a file.
"""

import json
import os
import re
import traceback

# What models fuse that do not say so themselves.
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
# The same for adapters alone, by SGLang's names (lora/lora.py, lora/utils.py there).
ADAPTED = {
    "gate_up_proj": ["gate_proj", "up_proj", "w1", "w3"],
    "down_proj": ["w2"],
    "in_proj": ["gate_proj", "x_proj"],
    "in_proj_qkvz": ["in_proj_q", "in_proj_k", "in_proj_v", "in_proj_z", "in_proj_qkv"],
    "fused_qkv_a_proj_with_mqa": ["q_a_proj", "kv_a_proj_with_mqa"],
    "qkvr": ["wq_du", "wk_dv", "wv_dv", "wr_du"],
    "embed_tokens": ["vocab_emb", "embeddings", "word_embeddings"],
    "lm_head": ["output", "unembed_tokens"],
}

_attachment = None


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
    from recipe_sdk.receive import worker

    parameter = next(model.parameters())
    return worker.facts(parameter.dtype, parameter.device.type)


def attachment():
    """This scheduler's; torch is imported by the time that SGLang calls."""
    global _attachment
    from recipe_sdk.receive.worker import Attachment

    _attachment = _attachment or Attachment()
    return _attachment


def attach(model, request):
    """Open a trainer's tensors, or the way to receive them."""
    from recipe_sdk.receive.fused import fit
    from recipe_sdk.receive.puller import Puller

    packed = getattr(model, "packed_modules_mapping", None) or PACKED

    def puller(handles):
        device = next(model.parameters()).device
        return Puller(handles, lambda tensors: fit(model, tensors, packed, direct(model)), device)

    return attachment().attach(request["handles"], puller)


def direct(model):
    """Whether parameters may be written in place: no layer keeps a packed copy, or products, of its weights."""
    return not any(
        getattr(m, "use_intel_amx_backend", False) or getattr(m, "w_kc", None) is not None for m in model.modules()
    )


def pull(model, request):
    """Copy a version from the tensors that were attached as key."""
    return attachment().pull(request["key"], request["version"], model.load_weights)


def zero_adapter(model, request):
    """Write an adapter that changes nothing to a folder."""
    from recipe_sdk.receive.worker import write_zero_adapter

    if _worker() == 0:
        # SGLang refuses an adapter of q_proj that has none of v_proj beside it: it fuses them.
        write_zero_adapter(request["path"], model.config, "o_proj")
    return {}


def unknown_modules(model, request):
    """Which modules of an adapter this worker has no place for, and the kinds of module that it has.

    SGLang accepts such an adapter, and its scheduler dies when a request uses it."""
    served = {}  # by layer; None: outside of the layers
    for name, module in model.named_modules():
        if hasattr(module, "set_lora_info"):  # SGLang's layers that adapters change
            served.setdefault(_layer(name), set()).add(name.rpartition(".")[2])
    if not served:
        raise RuntimeError("SGLang was started with enable_lora, and no layer of its model takes an adapter")
    packed = {**PACKED, **ADAPTED, **(getattr(model, "packed_modules_mapping", None) or {})}
    unknown = [m for m in request["modules"] if not _has(served.get(_layer(m), set()), m, packed)]
    return {"unknown": unknown, "served": sorted(set().union(*served.values()))}


def _layer(name):
    found = re.search(r"layers\.(\d+)\.", name)
    return int(found.group(1)) if found else None


def _has(served, module, packed):
    """Whether a layer with these modules has one that holds `module`, under its own name or fused."""
    last = module.rpartition(".")[2]
    names = {last} | {fused for fused, parts in packed.items() if last in parts}
    if ".experts" in module:
        names.add("experts")
    return bool(names & served)


DOES = {
    "facts": facts,
    "attach": attach,
    "pull": pull,
    "zero_adapter": zero_adapter,
    "unknown_modules": unknown_modules,
}
