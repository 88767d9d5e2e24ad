"""Studies: the table of numbers, and pictures of real beside synthetic features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.report import studies
from graphsilo.report.plot import Figure
from graphsilo.report.svg import draw

REAL = np.array([[1.0, 0.0, 5.0], [0.0, 1.0, 5.0], [1.0, 1.0, 5.0]])
STUDY = {
    0: {
        "real_features": torch.from_numpy(REAL),
        "real_labels": torch.tensor([1, 0, 1]),
        "synthetic_features": torch.tensor([[0.5, 0.5, 5.0], [2.0, 0.0, 5.0]]),
        "synthetic_labels": torch.tensor([0, 1]),
        "head_norm": 1.23456789,
        "hardest_class": 1,
    },
    3: {"head_norm": 2.0, "odd": float("nan"), "real_features": REAL},
}


def test_table_holds_every_plain_number():
    found = studies.table(STUDY)
    assert [title for title, _ in found.columns] == ["Client", "Head norm", "Hardest class"]
    assert found.rows == [["Client 0", "1.235", "1"], ["Client 3", "2", "–"]]
    assert studies.table({0: {"real_features": REAL}}) is None


def test_a_choice_is_told_in_words():
    study = {0: {"chosen": 1.0, "other": 1.0}, 1: {"chosen": 2.0}}
    found = studies.table(study, {"chosen": ("ridge", "trees")})
    assert [row[1:] for row in found.rows] == [["trees", "1"], ["2", "–"]]


def test_principal_plane_by_hand():
    # On a line with slope 1: coordinates ±√2 around the mean, everything on the first component.
    points, shares = studies.principal_plane(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    assert np.sort(points[:, 0]) == pytest.approx([-np.sqrt(2), 0.0, np.sqrt(2)], abs=1e-9)
    assert points[:, 1] == pytest.approx([0.0] * 3, abs=1e-6)
    assert shares == pytest.approx((1.0, 0.0), abs=1e-9)


def test_principal_plane_of_equal_or_single_points_is_finite():
    for values in (np.ones((4, 3)), np.ones((1, 3))):
        points, shares = studies.principal_plane(values)
        assert points.tolist() == [[0.0, 0.0]] * len(values)
        assert shares == (0.0, 0.0)


def test_figures_of_clients_that_gave_both():
    drawn = studies.draw_study(STUDY, ["even", "odd"])
    assert [figure.name for figure in drawn] == ["study-plane", "study-features"]
    for figure in drawn:
        assert list(figure.plots) == ["client 0"]
    scatter, heat = (figure.plots["client 0"] for figure in drawn)
    assert [len(mark.x) for mark in scatter.marks] == [3, 2]
    assert scatter.marks[0].tips == ["real, odd", "real, even", "real, odd"]
    # Sorted by class; the constant third feature varies least and still fits.
    real, synthetic = heat.marks
    assert real.values.tolist() == [[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [1.0, 1.0, 5.0]]
    assert (real.left, synthetic.left) == (0, 4)  # beside each other, with a gap
    assert real.top == 5.0


def test_large_features_are_thinned_out():
    draw = np.random.default_rng(0)
    study = {0: {"real_features": draw.random((1000, 300)), "synthetic_features": draw.random((900, 300))}}
    scatter, heat = studies.draw_study(study)
    assert {len(mark.x) for mark in scatter.plots["client 0"].marks} == {studies.MAX_POINTS}
    shapes = {mark.values.shape for mark in heat.plots["client 0"].marks}
    assert shapes == {(studies.MAP_ROWS, studies.MAP_COLUMNS)}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"real_features": REAL},
        {"real_features": REAL, "synthetic_features": np.ones((2, 2))},
        {"real_features": REAL, "synthetic_features": np.ones((0, 3))},
        {"real_features": REAL, "synthetic_features": np.full((2, 3), np.nan)},
    ],
    ids=["nothing", "real only", "other width", "empty", "nan"],
)
def test_nothing_is_drawn_without_a_pair(facts):
    assert studies.draw_study({0: facts}) == []


def test_missing_neighbours_are_shares_of_those_that_lack_as_many():
    one, other = np.array([[3, 1, 0], [0, 1, 0], [0, 0, 0]]), torch.tensor([[0, 0, 0], [1, 2, 0], [0, 0, 0]])
    figure = studies.missing_counts({0: {"missing_counts": one}, 1: {"missing_counts": other}})
    [heat] = figure.plots[""].marks
    np.testing.assert_array_equal(heat.values, [[75, 25, 0], [25, 75, 0], [np.nan] * 3])
    assert studies.missing_counts(STUDY) is None


def test_figures_can_stand_in_a_page():
    for figure in studies.draw_study(STUDY):
        assert isinstance(figure, Figure)
        assert all(picture.startswith("<svg") for _, pictures in draw(figure) for _, picture in pictures)
