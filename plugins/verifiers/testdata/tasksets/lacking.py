import no_such_module  # noqa: F401
