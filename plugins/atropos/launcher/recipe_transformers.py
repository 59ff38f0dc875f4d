"""Chat templates as atroposlib expects them.

atroposlib 0.4.0 and the environments written for it call tokenizer.apply_chat_template(messages) and take what comes
back for a list of token ids. transformers 5 gives a dictionary there unless it is asked with return_dict=False: len()
of it is 2, and a group that holds one cannot be sent. A call that says nothing about return_dict gets the list, as with
transformers 4; one that asks for a dictionary gets it.
"""

import functools
import inspect


def install():
    try:
        from transformers import PreTrainedTokenizerBase as base
    except ImportError:
        return  # atroposlib says by itself what it lacks
    apply = base.apply_chat_template
    returns = inspect.signature(apply).parameters.get("return_dict")
    if returns is None or returns.default is False:
        return

    @functools.wraps(apply)
    def ids_by_default(tokenizer, *args, **kwargs):
        if "return_dict" not in kwargs and not kwargs.get("return_assistant_tokens_mask"):
            kwargs["return_dict"] = False
        return apply(tokenizer, *args, **kwargs)

    base.apply_chat_template = ids_by_default
