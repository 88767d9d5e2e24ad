"""Flower as an engine between machines: for those who run it already, and for methods of one or few rounds.

Flower starts a process for each message at each site, so one request takes seconds where other engines take
milliseconds. Needs the extra ``flower`` in a virtual environment of its own; ``examples/flower`` is the app to copy.
"""

from __future__ import annotations

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""What each of Flower's processes needs in its environment so that it talks to nobody but the federation: unless it is
told not to, it reports its use, asks for newer versions and installs packages."""
