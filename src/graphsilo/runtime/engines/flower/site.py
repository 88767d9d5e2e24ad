"""A site's side of Flower: the SuperNode is the site's own to start, so there is nothing to do but say how.

No flwr here: a supervisor runs in the environment of its worker, a SuperNode may run in another.
"""

from __future__ import annotations

from collections.abc import Callable

from graphsilo.runtime.engines.nvflare.kit import ROOT, Kit

SOCKET_KEY = "graphsilo-site"
"""Where a SuperNode's ``--node-config`` says which unix socket the site's supervisor listens at."""

SOCKET_VARIABLE = "GRAPHSILO_SITE"
"""The environment variable that says the same; the node's configuration comes first."""


class FlowerSite:
    """Stands where other engines start their client process."""

    def __init__(self, kit: Kit, *, say: Callable[[str], None]):
        self._kit, self._say = kit, say

    def start(self) -> None:
        """Say which SuperNode belongs here."""
        folder, coordinator = self._kit.folder.absolute(), self._kit.federation.coordinator
        self._say(
            f"messages come through a SuperNode on this machine: flower-supernode "
            f"--superlink {coordinator.hosts[0]}:{coordinator.port} --root-certificates {folder / ROOT} "
            f"--auth-supernode-private-key KEY --node-config '{SOCKET_KEY}=\"{folder / 'run' / 'site.sock'}\"'"
        )

    def close(self) -> None:
        """Nothing was started, nothing is stopped."""
