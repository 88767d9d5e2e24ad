""""""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "torch_geometric", "pandas", "sklearn", "sknetwork", "pyarrow", "numpy")


def imported_by(*arguments: str) -> set[str]:
    """Heavy packages that a fresh process has loaded after a command."""
    program = (
        "import sys\nfrom graphsilo.cli import main\n"
        f"code = main({list(arguments)!r})\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())
