from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs graphsilo[flower], which lives in an environment of its own")

from flwr.app import Context, RecordDict
from flwr.cli.config_utils import load_and_validate

from graphsilo.errors import ConfigError
from graphsilo.runtime.flower import QUIET, server_app

pytestmark = pytest.mark.flower

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flower"


def context(**config):
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)


@pytest.mark.parametrize("missing", ["graphsilo-config", "graphsilo-out", "graphsilo-sites"])
def test_what_a_run_does_not_say_is_named(missing, tmp_path):
    given = {"graphsilo-config": str(tmp_path), "graphsilo-out": str(tmp_path), "graphsilo-sites": "north"}
    with pytest.raises(ConfigError, match=f"the run does not say {missing}"):
        server_app.run(None, context(**{**given, missing: " "}))


def test_a_configuration_must_be_a_file_here(tmp_path):
    with pytest.raises(ConfigError, match="no file on the machine of the SuperLink"):
        server_app.run(
            None,
            context(**{"graphsilo-config": str(tmp_path), "graphsilo-out": "out", "graphsilo-sites": "north"}),
        )


def test_flower_takes_the_template_and_it_names_every_setting():
    config, warnings = load_and_validate(EXAMPLE / "pyproject.toml")  # looks for the two apps, too
    assert not warnings
    keys = {value for name, value in vars(server_app).items() if name.endswith("_KEY")}
    assert set(config["tool"]["flwr"]["app"]["config"]) == keys
    assert tomllib.loads((EXAMPLE / "pyproject.toml").read_text()) == config


def test_the_example_is_quiet():
    lines = (EXAMPLE / "flower.env").read_text().split()
    assert dict(line.split("=") for line in lines) == QUIET
