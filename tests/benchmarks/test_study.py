"""Methods held against others over data sets, by hand."""

from __future__ import annotations

import papers_page
import pytest
import study

GCN, SAGE = "gcn", "sage"
ROWS: study.Rows = {
    "a.Cora": [
        study.Cell("local", GCN, {"ours": (80.0, 0.5), "tuned": (83.0, 0.1)}),
        study.Cell("local", SAGE, {"ours": (70.0, 0.5)}),
        study.Cell("fedavg", GCN, {"ours": (82.0, 0.5), "tuned": (82.0, 0.1)}),
        study.Cell("fedsage", SAGE, {"ours": (75.0, 1.0)}),
        study.Cell("fedridge", "", {"ours": (84.0, 0.5)}),
        study.Cell("global", GCN, {"ours": (90.0, 0.5)}),
    ],
    "b.Cora.ten": [
        study.Cell("local", GCN, {"ours": (80.0, 0.5)}),
        study.Cell("fedavg", GCN, {"ours": (84.0, 1.5)}),
        study.Cell("fedridge", "", {"ours": (83.0, 0.5)}),
    ],
    "a.PubMed": [
        study.Cell("local", GCN, {"ours": (80.0, 1.0)}),
        study.Cell("fedavg", GCN, {"ours": (78.5, 1.0)}),
        study.Cell("fedsage", SAGE, {"ours": (90.0, 1.0)}),
        study.Cell("fedridge", "", {"ours": (82.0, 1.0)}),
    ],
}


def test_the_rows_of_a_data_set_are_one() -> None:
    """FedAvg above alone: 2 and 4 points on Cora, deviations 1 and 2; no network on PubMed is FedSage's."""
    found = study.gaps(ROWS, study.alone, "ours")
    assert found["fedavg"] == {"Cora": (3.0, 1.5), "PubMed": (-1.5, 2.0)}
    assert found["fedsage"] == {"Cora": (5.0, 1.5)}
    assert found["fedridge"] == {"Cora": (3.5, 1.0), "PubMed": (2.0, 2.0)}  # no network: the row's alone
    assert found.keys() == {"fedavg", "fedsage", "fedridge"}
    assert study.gaps(ROWS, study.alone, "tuned") == {"fedavg": {"Cora": pytest.approx((-1.0, 0.2))}}
    assert study._counts(found["fedavg"]) == [1, 1, 0]
    assert study._counts(found["fedridge"]) == [1, 1, 0]  # as far as the deviations: level


def test_cells_of_other_numbers_of_seeds_are_not_compared() -> None:
    row = [
        study.Cell(name, GCN, {"ours": (80.0, 0.5)}, {"ours": count}) for name, count in (("local", 3), ("fedavg", 2))
    ]
    assert study.gaps({"a.Cora": row}, study.alone, "ours") == {}
    assert papers_page.tuned_seeds("80.0 (1 of 3)", []) == 1


def test_ranks_are_of_rows_that_all_have() -> None:
    """On Cora the means of two rows, 83.5, 83 and 80; with FedSage only the rows that have it."""
    names, data, found = study.ranked(ROWS, "ours", 2)
    assert (names, data) == (["fedavg", "fedridge", "local", "fedsage"], ["Cora", "PubMed"])
    assert found.means == (3.0, 1.5, 3.0, 2.5)  # Cora 82, 84, 80, 75: 2, 1, 3, 4; PubMed 4, 2, 3, 1
    without = {name: [cell for cell in row if cell.method != "fedsage"] for name, row in ROWS.items()}
    names, data, found = study.ranked(without, "ours", 2)
    assert found.means == (2.5, 1.0, 2.5)  # Cora 83, 83.5, 80; PubMed 78.5, 82, 80
    # Nemenyi's: 2.343 · √(3 · 4 / (6 · 2))
    assert found.critical_difference == pytest.approx(2.343, abs=1e-3)


def test_a_network_is_the_rows_or_the_methods() -> None:
    row = {"data.name": "Cora"}
    usual = study.model_of({**row, "method.name": "fedavg"})
    assert study.model_of({**row, "method.name": "opfgl"}) == study.model_of({**row, "method.name": "fairfgl"}) == usual
    assert study.model_of({**row, "method.name": "fedsage"}) == "sage, hidden 64, layers 2"
    assert study.model_of({**row, "method.name": "fedsage", "model.name": "gcn"}) == usual
    assert study.model_of({"data.name": "NCI1", "method.name": "fedpg"}) == "gin, hidden 64, layers 2"
    assert study.model_of({**row, "method.name": "fedridge"}) == ""


@pytest.mark.slow
def test_pictures_and_pages() -> None:
    """Every picture is drawn, and the page of every method in it leads there."""
    for part in study.PARTS:
        assert "<svg" in study.picture(part), part
    methods = {cell.method for row in study.measured().values() for cell in study.compared(row)}
    assert len(methods) > 20
    for name in methods - {study.RIDGE}:  # which has a heading of its own there
        page = (papers_page.ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
        assert "(../papers-findings.md#each-method-over-all-tables)" in page, name
