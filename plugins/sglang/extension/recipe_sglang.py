"""What recipe has SGLang's schedulers do, through --custom-weight-loader and the route for tensors.

SGLang itself is not touched: this file lies in a folder of its own on PYTHONPATH. A scheduler calls `call` between two
steps. An exception there would end the server, so none leaves it: every answer, also of a failure, is a file.
"""

import json
import os
import traceback

# What models fuse that do not say so themselves.
PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}

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


DOES = {"facts": facts, "attach": attach, "pull": pull, "zero_adapter": zero_adapter}
