"""One of the ranks of test_two_ranks_take_the_same_step_as_one; started by torchrun."""

import sys
from pathlib import Path

import torch

from worker import config
from worker.ranks import Ranks
from worker.tests.conftest import settings
from worker.tests.test_model import SETTINGS, after_steps, stepper


def main() -> None:
    tiny, directory, names, out = sys.argv[1:]
    torch.set_num_threads(1)
    ranks = Ranks(config.from_dict(settings(Path(directory), tiny, "http://unused")))
    results = {n: after_steps(stepper(Path(directory), tiny, ranks, **SETTINGS[n])) for n in names.split(",")}
    if ranks.main:
        torch.save(results, out)
    ranks.close()


if __name__ == "__main__":
    main()
