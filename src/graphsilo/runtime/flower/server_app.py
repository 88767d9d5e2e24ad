"""The coordinator in Flower: runs one graphsilo configuration over the SuperNodes of a run."""

from __future__ import annotations

import importlib
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from graphsilo.errors import ConfigError
from graphsilo.runtime.flower.transport import FlowerTransport

CONFIG_KEY = "graphsilo-config"
"""Run configuration: the graphsilo configuration, a path on the SuperLink's machine."""

OUT_KEY = "graphsilo-out"
"""Run configuration: the folder that the results go to, on the SuperLink's machine."""

SITES_KEY = "graphsilo-sites"
"""Run configuration: the names of the sites in the order of the federation, with spaces between."""

PATIENCE_KEY = "graphsilo-patience"
"""Run configuration: seconds that the sites have to come."""

_PATIENCE = 600.0


def run(grid: Grid, context: Context) -> None:
    """Wait for the sites, then run.

    Raises:
        ConfigError: The run configuration lacks something.
        FederationError: A site has not come.
    """
    config, out = Path(_setting(context, CONFIG_KEY)), Path(_setting(context, OUT_KEY))
    sites = _setting(context, SITES_KEY).replace(",", " ").split()
    if not config.is_file():
        raise ConfigError(
            f"{CONFIG_KEY} names {config}, which is no file on the machine of the SuperLink: give the whole path there."
        )
    transport = FlowerTransport(grid, sites)
    try:
        transport.wait_for_sites(float(context.run_config.get(PATIENCE_KEY, _PATIENCE)))
        # An engine's room lies below the room of experiments and may not import it: the name is looked up at run time.
        importlib.import_module("graphsilo.experiments.remote").run_over(transport, config, out)
    finally:
        transport.close()


app = ServerApp()
app.main()(run)


def _setting(context: Context, key: str) -> str:
    value = str(context.run_config.get(key, "")).strip()
    if not value:
        raise ConfigError(
            f"the run does not say {key}: set it in [tool.flwr.app.config], or give flwr run "
            f"--run-config '{key}=\"...\"'."
        )
    return value
