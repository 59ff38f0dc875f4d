"""Imported once by the server that other test processes are forked from. Nothing here may compute a gradient: torch
refuses a backward pass in a process forked after one."""

import peft  # noqa: F401
import torch
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM  # noqa: F401

import worker.train  # noqa: F401

torch.set_num_threads(1)
