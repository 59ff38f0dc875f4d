"""Prints the options of `vllm serve`, one a line: the name, and the values that it may have where vLLM names them."""

try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:  # vLLM 0.24
    from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

options = {
    name: sorted(str(c) for c in action.choices or [])
    for action in make_arg_parser(FlexibleArgumentParser())._actions
    for name in action.option_strings
    if name.startswith("--")
}
for name in sorted(options):
    print(*[name, *options[name]])
