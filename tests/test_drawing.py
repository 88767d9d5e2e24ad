"""Figures for papers: what is in the files."""

from __future__ import annotations

import re

import pytest

import graphsilo
from graphsilo import drawing
from graphsilo.cli import main
from graphsilo.errors import ConfigError
from graphsilo.report.plot import SERIES

matplotlib = pytest.importorskip("matplotlib")

QUICK = {"data": {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 40}, "partition": "random",
         "clients": 3, "rounds": 3, "seeds": [0, 1], "report": False}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    one = graphsilo.run(**QUICK, out=folder / "one", references=["local"])
    return one, graphsilo.run(**QUICK, method="fedprox", out=folder / "two")


def test_the_palette_is_that_of_the_report():
    assert tuple(SERIES) == drawing.SERIES


def test_a_curve_is_the_mean_over_the_rounds_that_all_seeds_reached():
    """Seeds 1: 10, 20; 2: 30, 60, 90: mean 20 and 40, from 10 to 30 and from 20 to 60."""
    curve = drawing.Curve("x", [{1: 10.0, 2: 20.0}, {1: 30.0, 2: 60.0, 3: 90.0}])
    assert curve.summary() == [(1, 20.0, 10.0, 30.0), (2, 40.0, 20.0, 60.0)]


def test_lines_and_dots_have_the_values_of_the_result(runs):
    one, _ = runs
    above, below = one.plot().axes
    by_round = [
        [100 * seed["rounds"][place]["validation"]["accuracy"] for seed in one.tree["seeds"]] for place in range(3)
    ]
    assert above.lines[0].get_ydata() == pytest.approx([sum(each) / 2 for each in by_round])
    clients = one.frame("clients").groupby("name")[["accuracy", "alone.accuracy"]].mean()
    gains = (clients["accuracy"] - clients["alone.accuracy"]).sort_values(kind="stable")
    assert [text.get_text() for text in below.get_yticklabels()] == gains.index.tolist()
    for line, name in zip(below.lines, gains.index, strict=True):
        assert line.get_xdata() == pytest.approx(100 * clients.loc[name, ["alone.accuracy", "accuracy"]].to_numpy())
    assert len(runs[1].plot().axes) == 1  # nobody trained alone
    with pytest.raises(ConfigError, match="was not scored by 'accurac'"):
        one.plot("accurac")


@pytest.mark.parametrize(
    ("ends", "places"),
    [([5.0, 1.0], [1.0, 5.0]), ([1.0, 9.9, 9.8, 0.5], [0.5, 0.7, 9.15, 10.0]), ([], [])],
)
def test_names_at_the_ends_of_lines_keep_apart_and_below_the_edge(ends, places):
    """0.85 apart on an axis from 0 to 10: 0.5, 1.35, 9.8 and 10.65, 0.65 too high; all but the lowest move down."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.set_ylim(0, 10)
    drawing._name_ends(axes, [(end, "", "black") for end in ends])
    assert [text.get_position()[1] for text in axes.texts] == pytest.approx(places)
    assert [text.xy[1] for text in axes.texts] == sorted(ends)


@pytest.mark.slow
def test_files_hold_text_and_are_the_same_again(tmp_path, runs):
    one, _ = runs
    for name in ("a.pdf", "a.svg", "a.png"):
        first = drawing.save(one.plot(), tmp_path / name).read_bytes()
        assert drawing.save(one.plot(), tmp_path / name).read_bytes() == first
    pdf = (tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType, embedded
    assert b"/Type3" not in pdf
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert {"validation", "test", "client 1", "Accuracy, %"} <= set(texts)
    assert "<text" in one.plot()._repr_svg_()


@pytest.mark.slow
def test_figures_from_the_command_line(tmp_path, runs, capsys):
    one, two = runs
    assert main(["compare", str(one.out), str(two.out), "--figure", str(tmp_path / "c.svg")]) == 0
    assert f"Figure: {tmp_path / 'c.svg'}" in capsys.readouterr().out
    assert "FedProx" in (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert main(["report", str(one.out), "--figure", str(tmp_path / "r.pdf")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.pdf")
    assert main(["report", str(one.out), "--figure", str(tmp_path / "r.eps")]) == 2
    assert "a figure is a .pdf, .svg or .png file" in capsys.readouterr().err
