"""The report's section on the tangent kernel's bound."""

from __future__ import annotations

from graphsilo.report.kernel import figure, summary, table


def record(**more):
    silos = [
        {"client": 0, "nodes": 30, "generated": 4, "global": 1.0, "cut": 1.5, "mended": 1.25},
        {"client": 1, "nodes": 10, "generated": 0, "global": 2.0, "cut": 3.0, "mended": 3.0},
        {"client": 2, "nodes": 0, "generated": 2, "global": None, "cut": None, "mended": None},
    ]
    mean = {"global": 1.25, "cut": 1.875, "mended": 1.6875}  # weights 30 and 10
    return {
        "blocks": 2, "layers": 1, "scale": "mean", "confidence": None, "global": {"nodes": 40, "bound": 1.0},
        "silos": silos, "mean": mean, "compared": 2, "nearer": 1, **more,
    }  # fmt: skip


def without_mending():
    silos = [{**row, "mended": None, "generated": None} for row in record()["silos"]]
    return record(silos=silos, mean={"global": 1.25, "cut": 1.875, "mended": None}, compared=0, nearer=0)


def test_a_row_per_silo():
    found = table(record())
    titles = [title for title, _ in found.columns]
    assert titles == ["Silo", "Nodes", "Generated", "Whole graph", "Cut graph", "Mended graph"]
    assert found.rows[0] == ["Client 0", "30", "4", "1", "1.5", "1.25"]
    assert found.rows[2][3:] == ["–", "–", "–"]
    assert found.rows[3] == ["Mean", "–", "–", "1.25", "1.875", "1.688"]


def test_in_words():
    text = summary(record())
    assert "2 aggregations with 1 ReLU layer each" in text
    assert "1.25 on the whole graph, 1.875 on the cut ones, 1.688 on the mended ones" in text
    assert "towards the whole graph's in 1 of 2 silos." in text
    assert "Mending" not in summary(without_mending())
    assert "cannot tell" not in text


def test_nodes_that_look_alike_are_said():
    silos = [{**row, "twins": {"global": 2, "cut": 4, "mended": 0}} for row in record()["silos"]]
    found = record(silos=silos)
    assert "6 on the whole graph, 12 on the cut graphs, 0 on the mended graphs" in summary(found)
    assert table(found).columns[3] == ("Alike", "")
    assert table(found).rows[0][3] == "2 / 4 / 0"
    assert all(len(row) == 7 for row in table(found).rows)


def test_dots():
    plot = figure(record()).plots["bound"]
    assert [mark.name for mark in plot.marks] == ["Whole graph", "Cut graph", "Mended graph"]
    assert (plot.marks[1].x, plot.marks[1].y) == ([1.5, 3.0], [0, 1])  # the third silo has none
    assert not plot.x.log
    assert len({mark.series for mark in plot.marks}) == 3


def test_two_alike_with_different_labels_need_decades():
    silos = [*record()["silos"], {"client": 3, "nodes": 5, "global": 50.0, "cut": 51.0, "mended": 50.5}]
    assert figure(record(silos=silos)).plots["bound"].x.log


def test_without_mended_graphs():
    assert [title for title, _ in table(without_mending()).columns] == ["Silo", "Nodes", "Whole graph", "Cut graph"]
    assert [mark.name for mark in figure(without_mending()).plots["bound"].marks] == ["Whole graph", "Cut graph"]


def test_an_empty_record():
    assert table({}) is None
    assert figure({}) is None
    assert summary({})
