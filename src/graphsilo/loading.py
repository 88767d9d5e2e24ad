"""Import modules that bring torch with them, at two thirds of the price.

Such an import makes half a million objects that stay. Python's collector, which looks for circles of objects that
nobody holds, goes through them again and again meanwhile, and once more in the first rounds of training.

    python -m graphsilo.loading MODULE ARGUMENTS      # as `python -m MODULE ARGUMENTS`: calls the module's main()
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def without_collector() -> Iterator[None]:
    """Nothing looks for circles of objects inside."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load(*modules: str) -> None:
    """Import modules in a process of our own, and never look through what they made again.

    Not for a process of somebody else's: what has become garbage in circles before is kept for good.
    """
    if all(module in sys.modules for module in modules):
        return
    with without_collector():
        for module in modules:
            import_module(module)
        gc.freeze()


def command(module: str, *arguments: str) -> list[str]:
    """What Python is given to run a module's ``main()`` in a process of its own.

    Nothing is imported from the folder that the process happens to be in, unless that is in its PYTHONPATH (``-P``).
    """
    return ["-P", "-m", "graphsilo.loading", module, *arguments]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _, started, *sys.argv[1:] = sys.argv
    load(started)
    sys.argv[0] = started
    sys.modules[started].main()
