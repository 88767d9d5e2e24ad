"""Which engine carries a federation's messages: the one place that knows all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graphsilo.errors import RunError, UnsupportedError, installing
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, KEY, ROOT, Kit, Role, read_kit
from graphsilo.runtime.site.certified import Kits
from graphsilo.runtime.transport import Body

if TYPE_CHECKING:
    from graphsilo.runtime.engines.flower.site import FlowerSite
    from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
    from graphsilo.runtime.engines.nvflare.site import NvflareSite


def coordinator_kit(folder: str | Path) -> Kit:
    """The kit of a coordinator, checked.

    Raises:
        RunError: It is a site's, or its certificates do not fit together.
    """
    return _kit(folder, "coordinator")


def site_kit(folder: str | Path) -> Kit:
    """The kit of a site, checked; errors as of ``coordinator_kit``."""
    return _kit(folder, "site")


def _kit(folder: str | Path, role: Role) -> Kit:
    kit = read_kit(folder)
    if kit.role != role:
        whose = "the coordinator's kit" if role == "site" else f"the kit of site '{kit.party}'"
        raise RunError(f"{folder} is {whose}: `graphsilo serve` needs the coordinator's, `graphsilo join` a site's.")
    kit.check()
    return kit


def transport_of(kit: Kit, *, say: Callable[[str], None]) -> NvflareTransport:
    """The coordinator's side of the engine that a kit names; not started yet.

    Args:
        kit: Of the coordinator.
        say: Is called when the engine ends and is started again.

    Raises:
        UnsupportedError: The engine is not installed, or begins on its own side.
    """
    _require_nvflare(kit)
    from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport

    _hear(say)
    return NvflareTransport(kit.folder)


def site_engine(kit: Kit, *, say: Callable[[str], None]) -> NvflareSite | FlowerSite:
    """The site's side of the engine that a kit names; not started yet.

    Args:
        kit: Of the site.
        say: Is called when the connection comes and goes, and why.

    Raises:
        UnsupportedError: The engine is not installed, or begins on its own side.
    """
    if kit.federation.engine == "flower":
        from graphsilo.runtime.engines.flower.site import FlowerSite

        return FlowerSite(kit, say=say)
    _require_nvflare(kit)
    from graphsilo.runtime.engines.nvflare.site import NvflareSite

    _hear(say)
    return NvflareSite(kit.folder)


def request_check(kit: Kit) -> Callable[[Body], memoryview] | None:
    """What a site's supervisor looks at every request with; None where the engine's own check is all there is."""
    if kit.federation.engine == "flower":  # its coordinator is started by the engine, without a kit
        return None
    from graphsilo.runtime.engines.nvflare.signing import Verifier

    return Verifier(kit.folder, kit.party).open


def kits_of(kit: Kit) -> Kits:
    """By what a site proves its silos' keys in secure sums, and checks those of others."""
    sites = {number: silo.site for number, silo in enumerate(kit.federation.silos)}
    return Kits(kit.folder / ROOT, kit.folder / CERTIFICATE, kit.folder / KEY, sites)


def _hear(say: Callable[[str], None]) -> None:
    """What the engine's keepers log is said, instead of going bare to the terminal."""
    log = logging.getLogger("graphsilo.runtime.engines.nvflare")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)


def _require_nvflare(kit: Kit) -> None:
    if kit.federation.engine != "nvflare":
        raise UnsupportedError(
            f"federation '{kit.federation.name}' runs on Flower, which starts graphsilo itself: "
            f"`graphsilo examples flower` copies the app, and its README says how."
        )
    from importlib.util import find_spec

    if find_spec("nvflare") is None:
        raise UnsupportedError(f"federations between machines need NVIDIA FLARE. {installing('nvflare')}")
