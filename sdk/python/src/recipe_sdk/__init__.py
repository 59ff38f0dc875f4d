"""The Python side of recipe: a trainer takes batches from the trajectory API, trains, and offers its weights.

`Bridge` is all that a trainer needs; see docs/writing-trainers.md. Importing this package loads
neither torch nor numpy.
"""

from __future__ import annotations

__version__ = "0.1.0"
