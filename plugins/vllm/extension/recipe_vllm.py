"""What recipe adds to a vLLM worker, through --worker-extension-cls and /collective_rpc.

vLLM itself is not touched: this file lies in a folder of its own on PYTHONPATH. The versions of vLLM that it is run
under are in plugins/vllm/versions.go.
"""

import recipe_freeze
import recipe_pull
import recipe_staged
import torch
from recipe_sdk.receive import worker

recipe_freeze.in_worker()
recipe_staged.in_worker()


def _tied(model):
    """(output head, embedding) of a model that ties them, else None."""
    head = getattr(model, "lm_head", None)
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    if not recipe_pull.tied(model) or head is None or embedding is None:
        return None
    return recipe_pull.bare(head), recipe_pull.bare(embedding)


class RecipeWorker:
    """Mixed into vLLM's worker. Arguments arrive as JSON values, results leave as dictionaries."""

    def recipe_reload(self, weights_path):
        """Load a checkpoint folder into the running model.

        The output head of a tied model is a case of its own on CPU: vLLM computes it from a packed copy that is made
        when that layer itself loads weights, which a tied head never does, so the old head would go on to be served.
        """
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
        coarse = any(recipe_pull.quantized(m) for m in self.model_runner.get_model().modules())
        dtype = torch.float8_e4m3fn if coarse else self.model_runner.model_config.dtype
        return worker.facts(dtype, getattr(getattr(self, "device", None), "type", ""))

    def recipe_attach(self, handles):
        """Open a trainer's tensors, or the way to receive them; handles is the JSON text that it published."""
        model = self.model_runner.get_model()
        packs = any(hasattr(m, "cpu_linear") for m in model.modules())
        mla = getattr(self.model_runner.model_config, "use_mla", False)  # keeps products of its weights

        def puller(given):
            return recipe_pull.Puller(model, given, direct=not packs and not mla, device=getattr(self, "device", None))

        return self._recipe_attachment().attach(handles, puller)

    def recipe_pull(self, key, version):
        """Copy a version from the tensors that were attached as key."""
        told = self._recipe_attachment().pull(
            key, int(version), lambda items: self.reload_weights(weights_iterator=items)
        )
        if told.get("path") == "loader":
            self._recipe_head()
        return told

    def _recipe_attachment(self):
        """This worker's; vLLM calls no constructor of this class."""
        if not hasattr(self, "_recipe_attached"):
            self._recipe_attached = worker.Attachment()
        return self._recipe_attached

    def recipe_zero_adapter(self, path):
        """Write an adapter that changes nothing to the folder path."""
        if getattr(self, "rank", 0) == 0:
            worker.write_zero_adapter(path, self.model_runner.get_model().config, "q_proj")
        return {"path": path}
