"""``graphsilo gntk``: the bound's term on the whole, the cut and the mended graphs."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from graphsilo.cli import gntk as command
from graphsilo.cli.gntk import find_study, load_mended
from graphsilo.errors import ConfigError, DataError, RunError, UnsupportedError
from graphsilo.evaluate.gntk import compare
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare

DATA = {"data": ["citation-sbm"], "partition": "random", "clients": 3}
SETTINGS = ["data.generator.nodes=150", "data.classes=3", "data.features=40", "data.feature_density=0.1"]


def gntk(**given):
    """The command, its flags at their defaults where nothing is given."""
    flags = inspect.signature(command.gntk).parameters.items()
    command.gntk(**{name: getattr(each.default, "default", each.default) for name, each in flags} | given)


def the_run(folder):
    """What the run's folder says of its data and cut."""
    overrides = {"partition.file": str(folder / "partition.npz")}
    return prepare(load_config(folder / "config.yaml", overrides=overrides))


@pytest.fixture
def mended(finished, tmp_path):
    """The run's folder with studies of two seeds: the whole graph's neighbours given back, and nothing."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", "partition.npz", "result.json"):
        (folder / name).write_bytes((finished / name).read_bytes())
    simulation = the_run(folder)
    for seed in (0, 1):
        arrays = {}
        for silo in simulation.silos:
            own = silo.graph.global_ids
            rest = np.setdiff1d(np.arange(simulation.graph.num_nodes), own) if seed == 0 else own[:0]
            graph = simulation.graph.subgraph(np.concatenate([own, rest]))
            features = graph.features.toarray() if graph.is_sparse else graph.features
            arrays |= {
                f"client-{silo.client}/mended_edges": graph.edges,
                f"client-{silo.client}/mended_features": features,
                f"client-{silo.client}/other": np.zeros(3),
            }
        target = folder / "study" / f"seed{seed}"
        target.mkdir(parents=True)
        np.savez(target / "study.npz", **arrays)
    return folder


def test_whole_and_cut_graphs(capsys, tmp_path):
    gntk(**DATA, assignments=SETTINGS, blocks=1, out=tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["data"] == "citation-sbm"
    assert (found["blocks"], found["layers"], found["scale"], found["study"]) == (1, 1, "mean", None)
    assert [row["client"] for row in found["silos"]] == [0, 1, 2]
    assert found["mean"]["cut"] > 0
    assert found["mean"]["mended"] is None
    text = capsys.readouterr().out
    assert "Client 2" in text
    assert f"{found['silos'][0]['cut']:.4g}" in text
    assert "Mended" not in text
    overrides = {"data": "citation-sbm", "partition": "random", "partition.clients": 3}
    simulation = prepare(load_config(None, overrides=overrides, assignments=SETTINGS))
    expected = compare(simulation.graph, {silo.client: silo.graph for silo in simulation.silos}, blocks=1)
    assert found["silos"] == expected["silos"]


def test_a_runs_mended_graphs(capsys, mended):
    gntk(run=mended)
    found = json.loads((mended / "gntk.json").read_text())
    assert found["study"].endswith("study/seed0/study.npz")
    for row in found["silos"]:
        assert row["mended"] == pytest.approx(row["global"], rel=1e-6)
        assert row["generated"] == 150 - row["nodes"]
    assert found["nearer"] == found["compared"] == 3
    text = capsys.readouterr().out
    assert "Mended graph" in text
    assert "in 3 of 3 silos" in text
    assert "gntk.json" in text


def test_a_chosen_seed(mended, tmp_path):
    gntk(run=mended, seed=1, out=tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["nearer"] == 0
    assert not (mended / "gntk.json").exists()
    with pytest.raises(ConfigError, match=r"seeds \[0, 1\]; 4 was asked for"):
        find_study(mended, 4)


def test_a_run_without_a_study(finished, tmp_path):
    with pytest.raises(ConfigError, match=r"evaluation\.study"):
        gntk(run=finished)
    with pytest.raises(ConfigError, match="finished run"):
        gntk(run=tmp_path)


def test_a_study_of_another_method_or_none(mended):
    silos = the_run(mended).silos
    study = mended / "study" / "seed0" / "study.npz"
    np.savez(study, **{"client-0/real_features": np.zeros((3, 2))})
    with pytest.raises(RunError, match="no mended graph"):
        load_mended(study, silos)
    for junk in (b"", b"not an archive", b"PK\x03\x04 cut off"):
        study.write_bytes(junk)
        with pytest.raises(RunError, match="cannot be read"):
            load_mended(study, silos)


def test_a_study_of_another_cut(mended):
    study = mended / "study" / "seed1" / "study.npz"
    with np.load(study, allow_pickle=False) as arrays:
        swapped = {
            name.replace("-0/", "-9/").replace("-1/", "-0/").replace("-9/", "-1/"): arrays[name] for name in arrays
        }
    np.savez(study, **swapped)
    with pytest.raises(DataError, match="another cut"):
        gntk(run=mended, seed=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": 1}, "--run"),
        ({"confidence": 1.5}, "between 0 and 1"),
        ({**DATA, "run": "run"}, "leave out a setting of data"),
        ({"assignments": ["data.classes=3"], "run": "run"}, "leave out --set data.classes=3"),
    ],
)
def test_wrong_usage(options, match, mended):
    if "run" in options:
        options = {**options, "run": mended}
    with pytest.raises(ConfigError, match=match):
        gntk(**options)


def test_too_large_a_graph():
    with pytest.raises(UnsupportedError, match="30000 nodes would need 14 GB"):
        gntk(**DATA, assignments=["data.generator.nodes=30000", "data.features=10"])


def test_as_a_command(tmp_path):
    app = typer.Typer()
    app.command()(command.gntk)
    flags = [part for text in SETTINGS for part in ("--set", text)]
    result = CliRunner().invoke(
        app,
        ["--data", "citation-sbm", "--partition", "random", "--clients", "2", "--blocks", "1", "--layers", "2",
         "--scale", "root", "--confidence", "0.05", "--out", str(tmp_path / "found.json"), *flags],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["layers"], found["scale"], found["confidence"]) == (2, "root", 0.05)
    help_text = CliRunner().invoke(app, ["--help"]).output
    assert "tangent kernel" in help_text
