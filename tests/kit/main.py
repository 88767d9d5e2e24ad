""""""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

HEAVY = ("torch", "torch_geometric", "pandas", "sklearn", "sknetwork", "pyarrow", "numpy")


def imported_by(*commands: Sequence[str]) -> set[str]:
    """Heavy packages that a fresh process has loaded after these commands, none of which failed."""
    program = (
        "import sys\nfrom graphsilo.cli import main\n"
        f"codes = [main(list(command)) for command in {commands!r}]\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\nsys.exit(any(codes))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())
