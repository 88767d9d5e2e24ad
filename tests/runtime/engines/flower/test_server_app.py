from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("flwr", reason="needs graphsilo[flower], which lives in an environment of its own")

from flwr.app import Context, RecordDict
from flwr.cli.config_utils import load_and_validate

from graphsilo.cli.federation import flower as server_app
from graphsilo.errors import ConfigError
from graphsilo.runtime.engines.flower import QUIET
from graphsilo.runtime.site.supervisor import SiteSupervisor

pytestmark = pytest.mark.flower

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
FEDERATION = {
    "name": "hospitals", "engine": "flower", "coordinator": {"host": "127.0.0.1"},
    "silos": ["silo-0", "silo-1", "silo-2"],
}  # fmt: skip
CONFIG = {
    "data": str(EXAMPLES / "tables" / "hospital.yaml"),
    "partition": {"rule": "random", "clients": 3},
    "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1},
    "model": {"hidden": [8]},
    "run": {"seeds": [0]},
}


def context(**config):
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)


@pytest.fixture
def given(tmp_path):
    """A complete run configuration."""
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(FEDERATION))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(CONFIG))
    return {
        "graphsilo-federation": str(tmp_path / "federation.yaml"),
        "graphsilo-config": str(tmp_path / "run.yaml"),
        "graphsilo-out": str(tmp_path / "out"),
    }


@pytest.mark.parametrize("missing", ["graphsilo-federation", "graphsilo-config", "graphsilo-out"])
def test_what_a_run_does_not_say_is_named(missing, given):
    with pytest.raises(ConfigError, match=f"the run does not say {missing}"):
        server_app.run(None, context(**{**given, missing: " "}))


def test_a_configuration_must_be_a_file_here(given, tmp_path):
    with pytest.raises(ConfigError, match="no file on the machine of the SuperLink"):
        server_app.run(None, context(**{**given, "graphsilo-config": str(tmp_path)}))


def test_flower_takes_the_template_and_it_names_every_setting():
    config, warnings = load_and_validate(EXAMPLES / "flower" / "pyproject.toml")  # looks for the two apps, too
    assert not warnings
    keys = {value for name, value in vars(server_app).items() if name.endswith("_KEY")}
    assert set(config["tool"]["flwr"]["app"]["config"]) == keys


def test_the_example_is_quiet():
    lines = (EXAMPLES / "flower" / "flower.env").read_text().split()
    assert dict(line.split("=") for line in lines) == QUIET


@pytest.mark.slow
def test_a_run_over_flower_gives_the_numbers_of_one_process(given, tmp_path, start_federation):
    """With secure sums: three silos with a supervisor and a worker each, SuperNodes before them, the template's app."""
    masked = {"run": {**CONFIG["run"], "secure_sums": True}, "evaluation": {"report": "federation"}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**CONFIG, **masked}))

    def graphsilo(*options):
        subprocess.run([sys.executable, "-m", "graphsilo", *options], check=True, capture_output=True, text=True)

    graphsilo("run", given["graphsilo-config"], "--out", str(tmp_path / "alone"))
    graphsilo("silo", "export", given["graphsilo-config"], "--out", str(tmp_path / "silos"))
    made = start_federation(secure=True)
    sites = []
    try:
        for number, name in enumerate(FEDERATION["silos"]):
            file = tmp_path / "silos" / name / "silo.yaml"
            sites.append(SiteSupervisor(name, [(number, file)], made.folder / f"site{number}"))
            sites[-1].start()
            made.add_site(name, socket=sites[-1].socket_path)
        start = time.monotonic()
        number = made.run(given["graphsilo-federation"], component=None, **given)
        made.wait_for_end(number, seconds=1200.0)
        said = made.flwr("log", number, "here", "--show")
        assert made.status(number) == "finished:completed", said
        print(f"\none round of fedavg, from start to end: {time.monotonic() - start:.0f} s")
        print(said)
    finally:
        for site in sites:
            site.close()
    alone, apart = (
        json.loads((folder / "result.json").read_text()) for folder in (tmp_path / "alone", tmp_path / "out")
    )
    for key in ("validation", "test", "confusion"):
        assert apart["seeds"][0].get(key) == alone["seeds"][0].get(key)
    assert apart["seeds"][0]["test"]
