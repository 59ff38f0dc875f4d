"""An environment as versions before 0.4 have them."""


def load_environment(**_):
    return None
