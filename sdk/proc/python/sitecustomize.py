"""Lets a Python program say where its threads are: recipe status --why --stacks.

It is first on PYTHONPATH of every program that a plugin starts, so each Python process in it imports it. A signal then
makes faulthandler write function, file and line of every thread to a file: no values, and also while the interpreter is
stuck in C code. A sitecustomize of the program's own comes after it.
"""

import os
import sys


def _listen():
    path, number = os.environ.get("RECIPE_STACKS"), os.environ.get("RECIPE_STACKS_SIGNAL")
    if not path or not number:
        return
    try:
        import faulthandler

        faulthandler.register(int(number), file=open(path, "a"), all_threads=True)
    except Exception:  # a Python without it, a folder that is gone: then there are no stacks
        pass


def _next():
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    path = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_listen()
_next()
