"""run.start: models begin as an earlier run left them."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import ConfigError, RunError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.starts import start_models
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, build_model
from graphsilo.federation.model_files import model_path
from graphsilo.federation.server import ServerContext
from graphsilo.federation.starts import read_start
from graphsilo.random import generator
from graphsilo.training.local import weights_of

STILL = {"method.lr": 1e-12, "method.weight_decay": 0.0, "method.rounds": 1}
"""Training that changes nothing that a prediction shows."""


def config_of(method="local", **settings):
    return load_config(
        overrides={
            "data.name": "citation-sbm", "data.generator": {"nodes": 120, "features": 12, "classes": 3},
            "partition.clients": 3, "method.name": method, "method.rounds": 6, "method.lr": 0.05, "model.name": "gcn",
            "model.hidden": 8, "run.seeds": [0, 1], **settings,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Folders of a run that reports own models, and of one that reports the common model."""
    root = tmp_path_factory.mktemp("earlier")
    run(config_of(), out=root / "own")
    run(config_of("fedavg", **{"evaluation.model": "common"}), out=root / "common")
    return root


def scores(result):
    return [[(row.client, row.test) for row in seed.clients] for seed in result.record.seeds]


@pytest.mark.slow
def test_a_run_goes_on_where_the_other_ended(earlier):
    """Where nothing more is learned the scores are the earlier run's, with workers too."""
    for method, folder, choice in (("local", "own", "own"), ("fedavg", "common", "common")):
        wanted = {"evaluation.model": choice, "run.start": str(earlier / folder), **STILL}
        before = run(config_of(method, **{"evaluation.model": choice}))
        after = run(config_of(method, **wanted))
        assert scores(after) == scores(before)
        workers = {"run.workers": 2 if method == "fedavg" else 1}
        assert scores(run(config_of(method, **wanted, **workers))) == scores(before)
        assert scores(run(config_of(method, **{**wanted, "run.start": None}))) != scores(before)


def test_all_but_a_last_layer_of_another_width_is_taken(earlier):
    method, folder = registry.load("local"), earlier / "own"
    simulation = prepare(config_of(task="link"), method)
    specs = start_models(str(folder), method, simulation, 1)
    for client, spec in specs.items():
        assert spec.start == (str(model_path(folder, 1, client, "best")), "own/")
        kept = read_start(spec.start)
        model = build_model(spec, simulation.schema, generator(1, "model"), "cpu")
        drawn = build_model(simulation.models[client], simulation.schema, generator(1, "model"), "cpu")
        for (name, now), fresh in zip(weights_of(model).items(), weights_of(drawn).values(), strict=True):
            assert torch.equal(now, fresh if name.startswith(model.head) else kept[name])
    assert start_models(str(folder), method, simulation, 7)[0].start == (str(model_path(folder, 0, 0, "best")), "own/")


@pytest.mark.parametrize(
    ("method", "settings"),
    [("fedstruct", {"width": 8, "steps": 1}), ("moon", {"projection": 6}), ("fednh", {"width": 8}),
     ("opfgl", {"lr": None}), ("fedlog", {"embedding_dim": 8})],
)  # fmt: skip
def test_methods_that_draw_weights_themselves_begin_with_it_too(earlier, method, settings):
    """The first layer is that of the run, at server and client."""
    loaded = registry.load(method)
    config = config_of(method, **{f"method.{name}": value for name, value in settings.items()})
    simulation = prepare(config, loaded)
    specs = start_models(str(earlier / "common"), loaded, simulation, 0)
    wanted = read_start(specs[0].start)["layers.0.weight"]
    typed = config.method_config()
    parties = [loaded.client(ClientContext(0, simulation.silos[0], typed, specs[0], 0))]
    if method != "opfgl":  # its server has no model
        parties.append(loaded.server(ServerContext(typed, simulation.schema, specs, 0, list(specs))))
    for party in parties:
        assert any(torch.equal(each, wanted) for each in party.weights.values() if each.shape == wanted.shape)


@pytest.mark.parametrize(
    ("method", "settings", "backbone"),
    [
        ("fedavg", {}, {}), ("scaffold", {}, {}), ("fairfgl", {}, {}), ("fedpg", {}, {}),
        pytest.param("opfgl", {"method.lr": None, "method.rounds": None}, {}, marks=pytest.mark.slow),
        ("fedsage_plus", {}, {"model.name": "sage"}),
        pytest.param(
            "fedlog", {"method.embedding_dim": 8}, {"model.name": "sage", "model.hidden": [8, 8], "model.layers": 3},
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_a_node_model_is_fine_tuned_for_links(tmp_path, method, settings, backbone):
    """Whatever trained it, and whether it is a client's own or common: one mechanism takes the hidden layers."""
    node = {"run.seeds": [0], "method.rounds": 1, **backbone, **settings}
    run(config_of(method, **node), out=tmp_path / "nodes")
    begun = {"task": "link", "run.seeds": [0], "run.start": str(tmp_path / "nodes"), "method.rounds": 1, **backbone}
    config = config_of("local", **begun)
    simulation = prepare(config, registry.load("local"))
    for client, spec in start_models(begun["run.start"], registry.load("local"), simulation, 0).items():
        begins = weights_of(build_model(spec, simulation.schema, generator(0, "model"), "cpu"))
        drawn = weights_of(build_model(simulation.models[client], simulation.schema, generator(0, "model"), "cpu"))
        first = next(iter(drawn))
        assert torch.equal(begins[first], read_start(spec.start)[first])
        assert not torch.equal(begins[first], drawn[first])
    with_start, without = run(config), run(config_of("local", **{**begun, "run.start": None}))
    assert scores(with_start) != scores(without)


@pytest.mark.parametrize(("method", "settings"), [("fedstruct", {"width": 8, "steps": 1}), ("moon", {"projection": 6})])
def test_a_backbone_is_found_within_a_larger_model(tmp_path, method, settings):
    """A run goes on with what is in it, also where the other method has the backbone alone."""
    named = {f"method.{name}": value for name, value in settings.items()}
    config = config_of(method, **{**named, "method.rounds": 1, "run.seeds": [0], "evaluation.model": "common"})
    run(config, out=tmp_path / "run")
    simulation = prepare(config, registry.load(method))
    for name in (method, "fedavg"):
        spec = start_models(str(tmp_path / "run"), registry.load(name), simulation, 0)[0]
        assert spec.start[1] == "encoder."
        model = build_model(spec, simulation.schema, generator(0, "model"), "cpu")
        assert torch.equal(weights_of(model)["layers.0.weight"], read_start(spec.start)["layers.0.weight"])


@pytest.mark.parametrize(
    ("folder", "method", "settings", "error", "text"),
    [
        ("own", "fedavg", {}, RunError, "holds no common model.*a method may have none"),
        ("own", "local", {"partition.clients": 4}, RunError, "model of client 3 .*that was not in that run has none"),
        ("own", "local", {"model.hidden": 9}, ConfigError, r"do not fit gcn.*\(12, 9\).*there it is \(12, 8\)"),
        ("own", "local", {"model.name": "sage"}, ConfigError, "do not fit sage.*there it is missing"),
        ("own", "fedridge", {}, UnsupportedError, "FedRidge has no backbone"),
        ("nowhere", "local", {}, ConfigError, "a run folder was wanted"),
    ],
)
def test_what_cannot_be_begun_with_is_refused(earlier, folder, method, settings, error, text):
    loaded = registry.load(method)
    simulation = prepare(config_of("local", **settings), loaded)
    with pytest.raises(error, match=text):
        start_models(str(earlier / folder), loaded, simulation, 0)


def test_what_the_other_run_may_have_seen_is_said(earlier):
    start = {"run.start": str(earlier / "own"), **STILL}
    found = {
        name: run(config_of(**start, **settings)).record.warnings
        for name, settings in {"same": {}, "cut": {"partition.seed": 5}, "links": {"task": "link"}}.items()
    }
    assert not [text for text in found["same"] if "the run in" in text]
    assert any("cut the same data otherwise" in text for text in found["cut"])
    assert any("those too that are test links" in text for text in found["links"])
