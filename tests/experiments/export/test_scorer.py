"""An exported model says what the run's model says, without graphsilo."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import util
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphsilo import documents
from graphsilo.data.sources.catalog import load
from graphsilo.data.sources.files import load_graph, save_graph
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments import export as exports
from graphsilo.experiments.config import load_config
from graphsilo.experiments.export import export
from graphsilo.experiments.export.scorer import given_of
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from kit.silos import write_bank

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip
BANKS = {
    "data.name": "bank", "data.transfers": 10_000, "data.sums": {"windows": [30]}, "partition.rule": "natural",
    "partition.split": "time",
}  # fmt: skip
TABLES = Path(__file__).resolve().parents[3] / "examples" / "tables"


def _module(folder):
    spec = util.spec_from_file_location("scorer", folder / "scorer.py")
    scorer = util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer


def _model(folder):
    return _module(folder).Model(folder)


def _raw(asked, graph):
    """[n, d] the features of a scaled graph in the units of the table."""
    found, scale = graph.features, asked.silo.scale
    rows = np.asarray(found if isinstance(found, np.ndarray) else found.toarray(), dtype=np.float64)
    if scale is None or not len(scale.factor):
        return rows
    return rows / np.where(scale.factor != 0, scale.factor, 1.0) + scale.shift


def _scores(folder, asked):
    graph, silo = asked.silo.seen.graph, asked.silo
    labels = np.full(graph.num_nodes, -1)
    labels[graph.rows_of(silo.graph.global_ids[silo.train])] = silo.labels[silo.train]
    return _model(folder).score(_raw(asked, graph), graph.edges, labels)


def _run_scorer(folder, *arguments):
    """In a process of its own, without the graphsilo that is here; without torch, too, where nothing asks for it."""
    code = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], {}, '__main__')"
    if "torch" not in (folder / "requirements.txt").read_text():
        code = f"import sys; sys.modules['torch'] = None; {code}"
    command = [sys.executable, "-I", "-c", code, folder / "scorer.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedridge"},
        {"name": "fedridge", "features": "separate", "dim": 16, "label_features": "always"},
        {"name": "fedtrees", "rounds": 3},
        {"name": "fedtrees", "rounds": 2, "dim": 16},
        {"name": "auto", "rounds": 6},
    ],
)
def test_scores_of_the_run(tmp_path, method):
    run(load_config(overrides={**BASE, "method": method, "data.scale": "standard"}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=1)
    found = _scores(tmp_path / "out", open_member(tmp_path / "run", client=1))
    assert np.allclose(found, predict(tmp_path / "run", client=1).probabilities, atol=3e-6)
    if method == {"name": "fedridge"}:
        said = _run_scorer(tmp_path / "out")
        assert said.stdout.splitlines()[-1] == "nodes that are decided otherwise: 0"
        assert said.returncode == 0
        card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
        assert "| client 1 (this one) | 50 |" in card
        ledger = pq.read_table(tmp_path / "run" / "ledger.parquet").to_pylist()
        own, answers, every, all_answers = (
            sum(
                row["bytes"]
                for row in ledger
                if row["direction"] == "up" and row["client"] in who and (row["phase"] == "evaluation") == judged
            )
            for who in ({1}, {0, 1, 2})
            for judged in (False, True)
        )
        assert 0 < 2 * own < every
        assert (
            f"This silo sent {own:,} bytes for training, and {answers:,} of scores and counts for evaluation; all "
            f"silos together {every:,} and {all_answers:,} (seed 0, by the ledger)." in card
        )
        with pytest.raises(ConfigError, match="not empty"):
            export(tmp_path / "run", tmp_path / "out", client=1)


def test_a_card_says_where_the_run_knows_more(tmp_path):
    """Of classes around its nodes; FedAvg's network knows none."""
    for more, knows in (
        ({"name": "fedridge", "label_features": "always"}, True),
        ({"name": "fedavg", "rounds": 1}, False),
    ):
        run(load_config(overrides={**BASE, "method": more}), out=tmp_path / f"run{knows}")
        export(tmp_path / f"run{knows}", tmp_path / f"out{knows}", client=1)
        card = (tmp_path / f"out{knows}" / "MODEL_CARD.md").read_text()
        assert ("the run knows more than tables say" in card) == knows


def test_decisions_of_the_run(tmp_path):
    rare = {"data.generator": {"nodes": 300, "classes": 2, "features": 40}, "evaluation.positive": 1}
    run(
        load_config(overrides={**BASE, **rare, "method.name": "fedridge", "partition.clients": 1}), out=tmp_path / "run"
    )
    export(tmp_path / "run", tmp_path / "out", client=0)
    said = predict(tmp_path / "run", client=0)
    calibrated, decisions = _model(tmp_path / "out").decide(
        _scores(tmp_path / "out", open_member(tmp_path / "run", client=0)), labelled=True
    )
    assert said.calibrated is not None
    assert np.allclose(calibrated, said.calibrated, atol=1e-5)
    assert decisions.tolist() == said.decisions.tolist()
    assert "| Average precision | AUC |" in (tmp_path / "out" / "MODEL_CARD.md").read_text()


def test_calibrated_probabilities_are_said_where_there_are_some(tables, tmp_path):
    """Of odds of 4 : 1 the slope 2 makes 16 : 1."""
    shutil.copytree(tables / "out", tmp_path / "out")
    assert _model(tmp_path / "out").decide(np.array([[0.2, 0.8]]))[0] is None
    about = json.loads((tmp_path / "out" / "model.json").read_text())
    about["decision"]["other"] |= {"slope": 2.0, "positive": 1}
    (tmp_path / "out" / "model.json").write_text(json.dumps(about))
    heading, *_ = csv.reader(io.StringIO(_run_scorer(tmp_path / "out", tables / "bank.yaml").stdout))
    assert heading == ["node", "ok", "mule", "calibrated", "decision"]
    assert _model(tmp_path / "out").decide(np.array([[0.2, 0.8]]))[0] == pytest.approx([16 / 17])


def test_decisions_elsewhere_are_by_scores_as_they_are_made_there(tmp_path):
    """Threshold and calibration of a given graph go by validation items without the labels around them."""
    own = {"data.generator": {"nodes": 300, "classes": 2, "features": 40}, "evaluation.positive": 1}
    method = {"name": "fedridge", "label_features": "always"}
    run(load_config(overrides={**BASE, **own, "method": method, "partition.clients": 1}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=0)
    asked = open_member(tmp_path / "run", client=0)
    graph, mine = asked.silo.seen.graph, predict(tmp_path / "run", client=0)
    given = predict(tmp_path / "run", client=0, graph=graph)
    assert given.decided != mine.decided
    val = mine.splits == "val"
    odds = np.log(given.scores[val] / (1 - given.scores[val]))
    threshold = asked.decision(elsewhere=True).threshold
    f1 = [
        2 * (found & right).sum() / (found.sum() + right.sum())
        for right in [mine.labels[val] == 1]
        for found in [odds >= threshold, *(odds >= each for each in odds)]
    ]
    assert f1[0] == pytest.approx(max(f1))
    model = _model(tmp_path / "out")
    calibrated, decisions = model.decide(model.score(_raw(asked, graph), graph.edges))
    assert decisions.tolist() == given.decisions.tolist()
    assert np.allclose(calibrated, given.calibrated, atol=1e-5)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A bank's tables, what was trained on them with types, dates and windows, and that model exported."""
    folder = tmp_path_factory.mktemp("tables")
    for file in TABLES.iterdir():
        shutil.copy(file, folder)
    overrides = {
        "data.name": str(folder / "bank.yaml"), "partition.rule": "random", "partition.clients": 2,
        "partition.split": "time", "method": {"name": "fedtrees", "rounds": 3, "min_child": 1},
    }  # fmt: skip
    run(load_config(overrides=overrides), out=folder / "run")
    export(folder / "run", folder / "out", client=1, onnx=True)
    return folder


def test_a_silo_without_labels_has_a_model_that_checks_itself(tmp_path):
    """By its own accounts, as it has no test items."""
    accounts = [(100.0 * k, "xy"[k % 2], "mule" if k % 3 else "ok", k % 4) for k in range(24)]
    one = write_bank(tmp_path, "a", accounts, 6)
    other = write_bank(tmp_path, "b", [(balance, word, "", times) for balance, word, _, times in accounts], 6)
    method = {"name": "fedtrees", "rounds": 2, "min_child": 1, "dim": 2}
    overrides = {"data.name": [str(one), str(other)], "method": method}
    run(load_config(overrides=overrides), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client="b")
    assert _run_scorer(tmp_path / "out").stdout.splitlines()[-1] == "nodes that are decided otherwise: 0"
    assert len(np.load(tmp_path / "out" / "check.npz")["asked"]) >= 10


def _table(text):
    heading, *rows = csv.reader(io.StringIO(text))
    return heading, [row[0] for row in rows], np.array([row[1:-1] for row in rows], dtype=float), rows


@pytest.mark.parametrize("name", [pytest.param("bank.yaml", marks=pytest.mark.slow), "silo.yaml"])
def test_tables_as_they_were_exported(tables, name):
    """Decimal commas, cents, days first, the bank's own words, empty cells, windows: as `predict` reads them."""
    if name == "silo.yaml":
        tree = documents.read(tables / "bank.yaml", "tables")
        (tables / name).write_text(documents.write({**tree, "split": {"mode": "time"}}))
    said = predict(tables / "run", client=1, graph=tables / name)
    found = _run_scorer(tables / "out", tables / name)
    assert found.stderr == ""
    heading, ids, numbers, rows = _table(found.stdout)
    assert heading == ["node", "ok", "mule", "decision"]  # too few items to calibrate by
    assert said.calibrated is None
    assert ids == said.node_ids.tolist()
    assert numbers[:, :2] == pytest.approx(said.probabilities, abs=1e-6)
    assert numbers[:, :2].std(axis=0).min() > 0.01
    assert [row[-1] for row in rows] == [said.class_names[each] for each in said.decisions]


def _check_elsewhere(folder, given, model=None, **overrides):
    """A run and its export say the same of a graph that neither has seen, as it lies in its files."""
    run(load_config(overrides={"partition.rule": "random", "partition.clients": 2, **overrides}), out=folder / "run")
    export(folder / "run", folder / "out", client=1, model=model)
    said = predict(folder / "run", client=1, graph=given, model=model)
    found = _run_scorer(folder / "out", given)
    assert found.stderr == ""
    heading, *rows = csv.reader(io.StringIO(found.stdout))
    count = len(said.class_names or said.probabilities[0])
    assert [row[0] for row in rows] == [str(name) for name in said.node_ids]
    assert np.array([row[1 : 1 + count] for row in rows], dtype=float) == pytest.approx(said.probabilities, abs=1e-6)
    assert said.probabilities.std(axis=0).min() > 1e-3
    return heading


@pytest.fixture(scope="module")
def amounts(tmp_path_factory):
    """Tables with amounts on links, some of them parallel, some from a node to itself, with directions or without."""
    folder, draw = tmp_path_factory.mktemp("amounts"), np.random.default_rng(0)
    for name in ("mine", "new"):
        labels = draw.integers(0, 3, 120)
        rows = [f"n{at},c{label},{label + draw.normal():.4f},{draw.normal():.4f}" for at, label in enumerate(labels)]
        (folder / f"{name}-nodes.csv").write_text("\n".join(["id,label,x,y", *rows]))
        ends = np.sort(draw.integers(0, 120, (300, 2)), axis=1)  # where links have no direction, each is said once
        links = [f"n{a},n{b},{draw.uniform(0.1, 5):.4f}" for a, b in (*ends, *ends[:20], (3, 3), (5, 5))]
        (folder / f"{name}-links.csv").write_text("\n".join(["a,b,amount", *links]))
        tree = {
            "name": name, "nodes": {"path": f"{name}-nodes.csv", "id": "id", "label": "label"},
            "edges": {"path": f"{name}-links.csv", "source": "a", "target": "b", "weight": "amount"},
        }  # fmt: skip
        for directed in (False, True):
            (folder / f"{name}-{directed}.yaml").write_text(documents.write({**tree, "directed": directed}))
    return folder


@pytest.mark.parametrize(
    ("method", "directed"),
    [
        ({"name": "fedridge"}, False),
        *(
            pytest.param(method, directed, marks=pytest.mark.slow)
            for directed in (False, True)
            for method in (
                {"name": "fedridge", "features": "sgc", "dim": 1}, {"name": "fedridge", "features": "separate"},
                {"name": "fedridge", "features": "columns"}, {"name": "auto", "rounds": 3},
                {"name": "fedtrees", "rounds": 3, "min_child": 1}, {"name": "fedavg", "rounds": 2},
            )
        ),
    ],
)  # fmt: skip
def test_weights_of_links(tmp_path, amounts, method, directed):
    mine, new = (amounts / f"{name}-{directed}.yaml" for name in ("mine", "new"))
    _check_elsewhere(tmp_path, new, **{"data.name": str(mine), "method": method})


@pytest.mark.parametrize(
    "more",
    [
        {"method": {"name": "fedtrees", "rounds": 3, "min_child": 1, "dim": 3}},
        *(
            pytest.param(more, marks=pytest.mark.slow)
            for more in (
                {"method": {"name": "fedridge", "features": "wl", "dim": 64}},
                {"method": {"name": "fedridge", "features": "mean"}},
                {"method": {"name": "fedridge", "features": "separate", "dim": 6, "ridge": [10.0], "own": False}},
                {"method": {"name": "auto", "rounds": 3}},
                {"method": {"name": "fedavg", "rounds": 2}, "model.name": "gin"},
            )
        ),
    ],
)
def test_whole_graphs(tmp_path, molecules, more):
    rings = load_graph(molecules)
    numbers = rings.union.features + 0.5
    mine, new = (
        save_graph(tmp_path / f"{name}.npz", replace(part, union=replace(part.union, features=rows)))
        for name, rows, part in (
            ("mine", numbers, rings), ("new", 1.5 * numbers[66:132], rings.subset(np.arange(11)))
        )
    )  # fmt: skip
    asked = {"data.name": str(mine), "data.scale": "standard", "task": "graph"}
    assert _check_elsewhere(tmp_path, new, **asked, **more)[:3] == ["graph", "0", "1"]
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
    assert "It says of every graph the probability of each class: 0, 1." in card
    assert "labelled" not in card  # graphs have no neighbours


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({"name": "fedproto", "predict": "prototype", "rounds": 2}, "own"),
        *(
            pytest.param(more, model, marks=pytest.mark.slow)
            for more, model in (
                ({"name": "fggp", "predict": "prototype", "rounds": 2, "voters": 3}, "own"),
                ({"name": "fggp", "predict": "prototype", "rounds": 2, "voters": 3}, "common"),
                ({"name": "fednh", "rounds": 2}, "own"),
                ({"name": "fednh", "rounds": 2}, "common"),
                ({"name": "fed_pub", "rounds": 2}, "common"),
                ({"name": "fedgcn", "rounds": 2}, "common"),
                ({"name": "fedstruct", "rounds": 2}, "own"),
                ({"name": "fedgm"}, "own"),
                ({"name": "opfgl"}, "own"),
            )
        ),
    ],
)
def test_methods_say_what_of_them_scores(tmp_path, more, model):
    mine, new = (
        save_graph(
            tmp_path / f"{name}.npz", load("citation-sbm", options={"generator": {**BASE["data.generator"], **extra}})
        )
        for name, extra in (("mine", {}), ("new", {"seed": 5, "nodes": 90}))
    )
    method = registry.load(more["name"])
    asked = {"data.name": str(mine), "method": {**method.quick, **more}}
    _check_elsewhere(tmp_path, new, model, **asked)


def test_what_a_card_says_of_tables(tables):
    card = (tables / "out" / "MODEL_CARD.md").read_text()
    assert "| nodes, account | balance, segment, opened (days since 2025-01-01) |" in card
    assert "| links, transfer (account to account) | amount, channel, instant |" in card
    assert "of all days and of the last 30 days and 90 days" in card


def test_faults_of_tables_are_one_line(tables):
    (tables / "worse.yaml").write_text((tables / "bank.yaml").read_text().replace("windows: [30, 90]", "windows: [30]"))
    with pytest.raises(SystemExit, match="the model was trained on"):
        _module(tables / "out")._main([str(tables / "worse.yaml")])


@pytest.mark.parametrize(
    "more",
    [
        {"method": {"name": "fedtrees", "rounds": 3}},
        {"method": {"name": "fedtrees", "rounds": 3, "dim": 16}},
        {"method": {"name": "fedridge", "features": "columns"}},
        {"method": {"name": "fedridge", "features": "columns", "dim": 60}},
        {"method": {"name": "auto", "rounds": 5}},
        {"method": {"name": "fedavg", "rounds": 2}, "model.name": "rgcn"},
        {"method": {"name": "fedavg", "rounds": 2}, "model.name": "gine"},
    ],
)
@pytest.mark.slow
def test_types_dates_and_rows_of_links(tmp_path, more):
    run(load_config(overrides={**BANKS, **more}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=0)
    asked = open_member(tmp_path / "run", client=0)
    graph = asked.silo.seen.graph
    found = _model(tmp_path / "out").score_given(given_of(graph))[graph.types.targets]
    other = replace(graph)  # not the silo's own, where classes are known
    said = asked.client.predict(asked.client.tensors(other), asked.view).softmax(1)[graph.types.targets]
    assert found == pytest.approx(said.detach().numpy(), abs=2e-6)
    assert found.std(axis=0).min() > 1e-3


def test_onnx_takes_columns_of_tables(tables):
    runtime = pytest.importorskip("onnxruntime")
    model = _model(tables / "out")
    ids, inputs = model.inputs(tables / "bank.yaml")
    known, scores = model.score_tables(tables / "bank.yaml")
    session = runtime.InferenceSession(tables / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    assert ids.tolist() == known.tolist()
    assert session.run(["scores"], inputs)[0] == pytest.approx(scores, abs=1e-6)
    assert "`model.onnx` takes them as `columns0`" in (tables / "out" / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    ("method", "onnx", "text"),
    [
        (
            {"name": "fedlog", "rounds": 1},
            False,
            "fedlog has no export: its classifiers hold each node and its neighbours against",
        ),
        ({"name": "trees_alone", "iterations": 10}, False, "trees_alone has no export: its trees are scikit-learn's"),
        ({"name": "fedavg", "rounds": 1}, True, "in the network 'gcn' nodes go on exchanging messages"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, method, onnx, text):
    run(load_config(overrides={**BASE, "method": method}), out=tmp_path / "run")
    with pytest.raises(UnsupportedError, match=text):
        export(tmp_path / "run", tmp_path / "out", client=1, onnx=onnx)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_says_something_else_is_not_left_behind(tmp_path, monkeypatch):
    run(load_config(overrides={**BASE, "method.name": "fedridge"}), out=tmp_path / "run")
    monkeypatch.setattr(exports, "check", lambda model: ({"scores": 0.25}, 0))
    with pytest.raises(UnsupportedError, match=r"differs by up to 2\.5e-01 from the run's scores"):
        export(tmp_path / "run", tmp_path / "out", client=1)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
