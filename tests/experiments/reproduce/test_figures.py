"""How the papers' figures are described, and which runs they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.evaluate.costs import COSTS
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.reproduce.figures import Figure, figures, find_figures, is_figure, plan
from graphsilo.experiments.runner import check_settings
from graphsilo.experiments.storage.place import Place

DRAWN = [each for each in figures() if not each.is_count]


@pytest.mark.parametrize("figure", DRAWN, ids=lambda each: f"{each.paper} {each.number}")
def test_every_setting_is_one_and_has_an_effect(figure: Figure, tmp_path: Path) -> None:
    sweeps, folder, notes = plan(figure, quick=True, out=tmp_path)
    assert folder == tmp_path / "figures/quick" / figure.number
    assert "Its numbers are no reproduction." in notes[0]
    for each in sweeps:
        assert len({point.name for point in each.points}) == len(each.points) >= 1
        assert {name.rpartition(".")[2] for name in each.metrics or ()} <= METRICS.keys() | COSTS.keys()
        for point in each.points:
            check_settings(point.config, Place.of(point.out, resume=True), remote=False)
            assert point.config.run.references == ([] if point.config.task == "link" else ["majority"])


def test_every_figure_of_the_papers_is_there() -> None:
    numbers = {paper: {each.number.rstrip("abcd") for each in figures() if each.paper == paper} for paper in
               ("FedLoG", "O-pFGL", "FedPG", "FedSage+", "FairFGL")}  # fmt: skip
    assert numbers == {
        "FedLoG": {"3", "4", "6", "7", "8", "9", "10"}, "O-pFGL": {"1", "3", "4", "5", "7", "8", "9", "10", "11"},
        "FedPG": {"1", "3", "4", "5", "6", "7"}, "FedSage+": {"1"}, "FairFGL": {"2", "4", "5"},
    }  # fmt: skip


def test_a_figure_and_its_parts() -> None:
    assert [each.number for each in find_figures("fedpg", "Fig. 5")] == ["5a", "5b"]
    assert [each.number for each in find_figures("FedPG", "figure 5b")] == ["5b"]
    assert [each.number for each in find_figures("fedlog", "fig10")] == ["10"]
    assert not any(map(is_figure, ("II", "5", None)))


@pytest.mark.parametrize(
    ("paper", "number", "text"),
    [
        ("fedp", "fig4", "did you mean 'FedPG'"),
        ("FedPG", "fig9", "those that can be drawn are 1, 3, 4, 5a"),
    ],
)
def test_what_cannot_be_drawn(paper: str, number: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        find_figures(paper, number)


def test_a_quick_look_has_two_values_of_each_setting(tmp_path: Path) -> None:
    [figure] = find_figures("FedPG", "fig7d")
    [whole], _, _ = plan(figure, out=tmp_path)
    [look], _, notes = plan(figure, quick=True, out=tmp_path)
    assert [len(each.points) for each in (whole, look)] == [16, 8]
    assert look.grid == {"method.participation": (0.25, 0.5)}
    assert "two values" in notes[0]


def test_what_is_asked_for_goes_over_what_a_figure_says(tmp_path: Path) -> None:
    [figure] = find_figures("FedPG", "fig4")
    [found], _, notes = plan(figure, data=["Cora"], clients=3, methods=["GCN"], seeds=[4, 5], out=tmp_path)
    assert [point.name for point in found.points][:2] == ["Cora, GCN, hop_share 0", "Cora, GCN, hop_share 0.25"]
    config = found.points[0].config
    assert (config.data.name, config.partition.clients, config.run.seeds) == ("Cora", 3, [4, 5])
    assert (config.model.name, config.partition.rule, config.method_config().rounds) == ("gcn", "metis", 100)
    assert "The paper's data are Reddit and ogbn-products" in notes[-1]
    assert found.chosen_by_validation == ("method.hop_share",)
    with pytest.raises(ConfigError, match="a series of this figure was wanted, got 'gin'"):
        plan(figure, methods=["GIN"])
