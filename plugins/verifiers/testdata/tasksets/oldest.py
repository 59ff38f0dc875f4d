"""An environment as versions before 0.4 have them, by its imports."""

from verifiers import SingleTurnEnv  # noqa: F401
