"""The error of weights that cannot be taken."""


class Refused(Exception):
    """The weights cannot be taken, and nothing has been touched."""
