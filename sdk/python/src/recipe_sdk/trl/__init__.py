"""TRL's GRPOTrainer, and those that derive from it such as Axolotl's, on a bridge: samples come from the trajectory API
instead of being generated, everything after that is TRL's."""

from .mixin import Bridged, Ended, run
from .settings import TRLSettings
from .sizes import Sizes, sizes
from .table import KINDS, Table

__all__ = ["KINDS", "Bridged", "Ended", "Sizes", "TRLSettings", "Table", "run", "sizes"]
