"""Prints the options of `vllm serve`, one a line: the name, and the values that it may have where vLLM names them."""

from importlib import import_module

for folder in ("common", "launchers", "openai"):  # vLLM 0.33, 0.32 and 0.24
    try:
        make_arg_parser = import_module(f"vllm.entrypoints.{folder}.cli_args").make_arg_parser
        break
    except ImportError:
        continue
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

# also names that help does not show: vLLM 0.33 takes --no-enable-x beside --disable-x
options = {
    name: sorted(str(c) for c in action.choices or [])
    for name, action in make_arg_parser(FlexibleArgumentParser())._option_string_actions.items()
    if name.startswith("--")
}
for name in sorted(options):
    print(*[name, *options[name]])
