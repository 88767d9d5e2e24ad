"""The coordinator in Flower: runs one graphsilo configuration over the SuperNodes of a run.

Started by Flower, as ``graphsilo serve`` is by a person.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from graphsilo import report
from graphsilo.errors import ConfigError
from graphsilo.experiments.client_names import find_left_out
from graphsilo.experiments.config import load_config
from graphsilo.experiments.references import with_alone
from graphsilo.experiments.service.run_over import run_over
from graphsilo.runtime.engines.flower.transport import FlowerTransport
from graphsilo.runtime.remote.federation_file import load_federation

# The run configuration; all paths are those of the SuperLink's machine.
FEDERATION_KEY = "graphsilo-federation"  # federation.yaml
CONFIG_KEY = "graphsilo-config"  # what to run
OUT_KEY = "graphsilo-out"  # the folder that the results go to
RESUME_KEY = "graphsilo-resume"  # whether to go on from the checkpoints in that folder
PATIENCE_KEY = "graphsilo-patience"  # seconds that the sites have to come

_SHORTEST = 60.0  # seconds: Flower starts a process for each request, so nothing is answered at once
_log = logging.getLogger("flwr")  # what a ServerApp says there goes to whoever started the run


def run(grid: Grid, context: Context) -> None:
    """Wait for the sites, then run.

    Raises:
        ConfigError: The run configuration lacks something.
        FederationError: A site has not come.
    """
    federation = load_federation(_file(context, FEDERATION_KEY))
    path, out = _file(context, CONFIG_KEY), Path(_setting(context, OUT_KEY))
    patience = float(context.run_config.get(PATIENCE_KEY, 600.0))
    config = with_alone(load_config(path))
    clients = {
        site: [number for number, silo in enumerate(federation.silos) if silo.site == site] for site in federation.sites
    }
    names = {number: silo.name for number, silo in enumerate(federation.silos)}
    absent = find_left_out(config.run.without, len(names), names)
    sites = tuple(site for site, members in clients.items() if not set(members) <= set(absent))
    transport = FlowerTransport(grid, sites, shortest=_SHORTEST)
    try:
        transport.wait_for_sites(patience)
        run_over(
            transport,
            config,
            name=federation.name,
            clients=clients,
            out=out,
            resume=bool(context.run_config.get(RESUME_KEY, False)),
            say=_log.info,
            report=report.write,
            wait=patience,
            max_items={number: silo.max_items for number, silo in enumerate(federation.silos) if silo.max_items},
            names=names,
        )
        _log.info("results: %s", out)
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


def _file(context: Context, key: str) -> Path:
    path = Path(_setting(context, key))
    if not path.is_file():
        raise ConfigError(
            f"{key} names {path}, which is no file on the machine of the SuperLink: give the whole path there."
        )
    return path
