"""Examples that take minutes as they are, on a tiny graph."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo.cli import main
from graphsilo.data.partition import registry as rules
from graphsilo.errors import ConfigError
from graphsilo.experiments.runner import run
from graphsilo.federation import trust
from graphsilo.models import registry
from graphsilo.training.objective import Step

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = (
    "data.generator={nodes: 90, classes: 4, features: 20, feature_density: 0.2}", "method.generator_epochs=1",
    "method.networks=1", "method.prototypes=2", "method.embedding_dim=8", "model.hidden=[8]",
)  # fmt: skip


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_fedlog_reliability(capsys):
    """One table per question: five kinds of knowledge, one column per receiver, accuracies in percent."""
    module = example("fedlog_reliability")
    settings = [word for setting in TINY for word in ("--set", setting)]
    module.main(["--data", "citation-sbm", "--clients", "2", "--rounds", "2", *settings])
    blocks = capsys.readouterr().out.strip().split("\n\n")
    assert [block.partition(":")[0] for block in blocks] == ["missing class", "unseen node", "new client"]
    for block in blocks:
        _, head, *rows = block.splitlines()
        assert head.split() == ["receiver", "0", "receiver", "1"]
        assert [row.split()[0] for row in rows] == list(module.KNOWLEDGE)
        for row in rows:
            values = [value for value in row.split()[1:] if value != "/"]
            assert len(values) == 4
            assert all(value == "–" or 0 <= float(value) <= 100 for value in values)


def test_fedavg_by_hand_is_fedavg(monkeypatch):
    """Accuracies of the common model after every round; a node more or less where two classes are as likely."""
    module = example("fedavg_from_scratch")
    monkeypatch.setattr(module, "ROUNDS", 12)
    curve = module.federate()[1]
    theirs = [row["modes"]["aggregate_local"] for row in module.by_graphsilo().tree["seeds"][0]["rounds"]]
    assert len(theirs) == 12
    for (val, test), row in zip(curve, theirs, strict=True):
        assert val == pytest.approx(row["validation"]["accuracy"], abs=1.5e-3)
        assert test == pytest.approx(row["test"]["accuracy"], abs=1.5e-3)
    assert curve[-1][1] > 0.7
    assert len((EXAMPLES / "fedavg_from_scratch.py").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_own_model_runs_and_is_explained(monkeypatch, small):
    module = example("own_model")
    monkeypatch.setitem(sys.modules, "own_model", module)
    monkeypatch.setattr(registry, "_ADDED", {})
    registry.register(module.BACKBONE)
    try:
        result = run(small(model__name="graphconv"))
        assert result.tree["config"]["model"]["name"] == "graphconv"
        with pytest.raises(ConfigError, match=r"model\.dropout"):
            run(small(model__name="graphconv", model__dropout=2.0))
        with pytest.raises(ConfigError, match="already"):
            registry.register(replace(module.BACKBONE, name="gcn"))
    finally:
        registry._registry.cache_clear()


def test_the_own_rule_cuts_in_proportion(monkeypatch):
    module = example("own_partition")
    monkeypatch.setattr(rules, "_ADDED", {})
    rules.register(module.RULE)
    try:
        graph = graphsilo.load("citation-sbm", nodes=100)
        found = graphsilo.partition(graph, "quantity", clients=4, power=1.0)
        assert [len(nodes) for nodes in found.nodes] == [10, 20, 30, 40]
        with pytest.raises(ConfigError, match=r"power"):
            graphsilo.partition(graph, "quantity", clients=4, power=-1.0)
        with pytest.raises(ConfigError, match="already"):
            rules.register(module.RULE)
    finally:
        rules._rules.cache_clear()


@pytest.mark.slow
def test_the_page_to_bring_your_own(monkeypatch, tmp_path, capsys):
    """Every block of it, in its order: one program in Python, and the commands in a folder with its files."""
    for name in ("own_net.py", "own_cut.py", "own_method.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    page = (EXAMPLES.parent / "docs" / "own.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|sh)\n(.*?)```", page, flags=re.DOTALL)
    named: dict = {}
    for code in (code for kind, code in blocks if kind == "python" and "--8<--" not in code):
        exec(code, named)
    assert named["graph"].num_nodes == 60
    assert "missed" in named["result"].summary["test"]
    lines = [line for kind, code in blocks if kind == "sh" for line in code.splitlines()]
    assert len(lines) == 5
    for line in lines:
        trust._ALLOWED.clear()  # as in another process
        assert main([*line.split()[1:], *(["--no-report"] if " run " in line else [])]) == 0, line
    assert "fedper" in (tmp_path / "runs" / "mine" / "config.yaml").read_text(encoding="utf-8")


def test_the_term_of_the_page_trains(small, tmp_path):
    """The block about a term stands in the place of FedDyn's client, and changes what is learned."""
    page = (EXAMPLES.parent / "docs" / "own-method.md").read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "def term" in code)
    module = example("feddyn")
    named = {**vars(module), "functional": torch.nn.functional, "Step": Step}
    learned = []
    for place, text in enumerate((code, code.replace("run_epochs(term=term)", "run_epochs()"))):
        exec(f"class Other(TrainingClient[FedDynConfig]):\n{indent(text, '    ')}", named)
        method, out = replace(module.METHOD, name="other", client=named["Other"]), tmp_path / str(place)
        graphsilo.run(
            small(), method=method, out=out, report=False, **{"method.local_epochs": 3, "evaluation.models": True}
        )
        learned.append((out / "models" / "seed0-aggregate-last.safetensors").read_bytes())
    assert learned[0] != learned[1]


@pytest.mark.slow
def test_four_banks_are_read_as_they_were_made(monkeypatch, tmp_path):
    """What a bank exports is what the generated bank has of its customers, transfers to other banks included."""
    made = example("banks/make_tables")
    monkeypatch.setattr(made, "TRANSFERS", 10_000)
    made.main(tmp_path)
    whole = made.Bank(seed=made.SEED, transfers=10_000).generate()
    graph = graphsilo.load(tmp_path / "birch" / "tables.yaml")
    own = whole.owners.of_node == whole.owners.names.index("birch")
    place = {name: node for node, name in enumerate(graph.node_names)}
    here = np.array([place[name] for name in whole.node_names[own]])
    np.testing.assert_array_equal(graph.labels[here], whole.labels[own])
    np.testing.assert_allclose(graph.time[here], whole.time[own], atol=1e-5)
    for column in ("account.age", "account.balance", "account.segment=sme"):
        known, read = (each.features[:, each.feature_names.index(column)] for each in (whole, graph))
        np.testing.assert_allclose(np.asarray(read)[here], np.asarray(known)[own], rtol=1e-6)
    of = whole.links
    moved = of.of_link == of.relations.index("transfer")
    counts = [int((moved & first & second).sum()) for first in (own[of.ends[0]], ~own[of.ends[0]])
              for second in (own[of.ends[1]], ~own[of.ends[1]])]  # fmt: skip
    read = {name: int((graph.links.of_link == n).sum()) for n, name in enumerate(graph.links.relations)}
    assert [read["transfer"], read["sent"], read["received"]] == counts[:3]
    assert read["payment"] == int((~moved & own[of.ends[0]]).sum())
