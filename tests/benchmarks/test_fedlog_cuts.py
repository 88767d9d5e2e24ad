"""How near a cut is to the published one: by hand, and against the counts as they are stored."""

from __future__ import annotations

from pathlib import Path

import fedlog_cuts
import numpy as np
import papers
import pytest

from graphsilo.data.sources.catalog import load

OWN = np.array([[5, 0, 2], [1, 4, 0]])


def cut(own: np.ndarray, new: list[int]) -> fedlog_cuts.Cut:
    return fedlog_cuts.Cut(own, np.minimum(own, 1), np.array(new))


def test_clients_may_be_numbered_in_any_order() -> None:
    paper = {"own": np.array([[1, 3, 0], [5, 0, 4]]), "new": np.array([7, 0, 1])}
    # In order 4 + 3 + 0 + 4 + 4 + 4 = 19, swapped 1 + 2; the new client is off by 1 + 2.
    assert fedlog_cuts.distance(cut(OWN, [6, 2, 1]), paper) == (3 + 3, (1, 0))


def test_classes_that_are_not_printed_of_the_new_client_do_not_count() -> None:
    paper = {"own": OWN, "new": np.array([6, 2])}
    assert fedlog_cuts.distance(cut(OWN, [6, 2, 900]), paper) == (0, (0, 1))


def test_a_class_that_nobody_trains_is_named() -> None:
    assert cut(OWN, [0, 0, 0]).untrained == []
    assert cut(OWN * [1, 0, 1], [0, 0, 0]).untrained == [1]


@pytest.mark.parametrize(
    ("name", "own", "new"), [("Cora", 1854, 605), ("PubMed", 13511, 4878), ("Computers", 10122, 3069)]
)
def test_published_counts_add_up(name: str, own: int, new: int) -> None:
    found = fedlog_cuts.published(name)
    assert (int(found["own"].sum()), int(found["new"].sum())) == (own, new)
    # A client holds no node of a class that it lacks, but for one validation node of Cora's client 0.
    assert int(found["own"][found["missing_class"] > 0].sum()) == (name == "Cora")
    assert len(found["own"]) == 3


@pytest.mark.slow
@pytest.mark.data
def test_rows_stand_on_cuts_that_leave_no_class_out(data_root: Path) -> None:
    _, runs = papers.read("fedlog")
    rows = {run.row: run for run in runs if run.overrides["data.name"] == "Cora"}
    graph = load("Cora", root=data_root, options={"largest_component": True})
    clients = {(run.overrides["scenario.name"], run.overrides["partition.clients"]) for run in rows.values()}
    assert clients >= {("unseen", 3), ("unseen", 5), ("unseen", 10), ("open", 3)}
    for name, run in rows.items():
        chosen = run.overrides
        assert chosen["partition.ratios"] == list(fedlog_cuts.RATIOS)
        where = chosen["partition.clients"], chosen["partition.cut_seed"], chosen["scenario.name"]
        found = fedlog_cuts.cut_of(graph, *where)
        assert found.untrained == [], name
