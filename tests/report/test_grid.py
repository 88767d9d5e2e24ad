"""Runs of several data sets in one table."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import ConfigError
from graphsilo.report import Grid, comparison, to_csv, to_latex, to_markdown
from graphsilo.report.layout import layout
from kit import result_tree

LEVELS = {
    "Cora": {"FedAvg": 0.79, "FedProx": 0.81, "Local": 0.70},
    "CiteSeer": {"FedAvg": 0.68, "FedProx": 0.67, "Local": 0.60},
    "PubMed": {"FedAvg": 0.85, "FedProx": 0.86, "Local": 0.84},
}


def run(root: Path, method: str, data: str, scores: list[float], /, **more: Any) -> Path:
    """A run folder whose data and cut are those of its data set."""
    folder = root / f"{method}-{data}-{len(list(root.iterdir()))}"
    folder.mkdir()
    facts = {
        "method": {"name": method.lower(), "title": method},
        "fingerprint": folder.name,
        "data": {"name": data, "hash": data},
        "partition": {"rule": "metis", "clients": 10, "hash": f"cut of {data}"},
        "config": {"method": {"name": method.lower()}, "model": {"name": "gcn"}, "scenario": {"name": "seen"}},
    }
    for name, value in more.items():
        facts[name] = {**facts.get(name, {}), **value} if isinstance(value, dict) else value
    (folder / "result.json").write_text(json.dumps(result_tree([{"accuracy": score} for score in scores], **facts)))
    return folder


def folders(root: Path, seeds: int = 7, levels: dict[str, dict[str, float]] = LEVELS) -> list[Path]:
    """Every method on every data set; all differences between seeds are the same."""
    return [
        run(root, method, data, [level + 0.001 * seed for seed in range(seeds)])
        for data, methods in levels.items()
        for method, level in methods.items()
    ]


def grid(found: Any) -> Grid:
    assert isinstance(found, Grid)
    return found


def test_data_sets_are_columns_and_each_has_a_best(tmp_path: Path) -> None:
    table = grid(comparison(folders(tmp_path)))
    assert [each.title for each in table.tables] == ["Cora", "CiteSeer", "PubMed"]
    assert table.labels == ("FedAvg", "FedProx", "Local")
    # Never 79 of Cora against 86 of PubMed: FedProx leads two columns, FedAvg one
    assert [each.best["accuracy"] for each in table.tables] == [(1,), (0,), (1,)]
    assert table.warnings == ()
    # 2 / 2^7 · 3 pairs of runs = 0.047, in each column
    assert [[each.mark("accuracy", place) for place in range(3)] for each in table.tables] == [
        ["†", "", "†"], ["", "†", "†"], ["†", "", "†"]
    ]  # fmt: skip
    assert any("Holm-corrected over all 3 pairs of runs of a column, p ≤ 0.05" in text for text in table.legend)
    lines = {line.label: [cell.text for cell in line.cells] for line in layout(table).lines}
    # Ranks by hand: FedAvg 2, 1, 2; FedProx 1, 2, 1; Local 3, 3, 3
    assert lines["FedAvg"] == ["79.3 ± 0.2", "68.3 ± 0.2", "85.3 ± 0.2", "1.67"]
    assert [lines[name][-1] for name in ("FedProx", "Local")] == ["1.33", "3.00"]
    # Friedman: 12·3/(3·4)·(25/9 + 16/9 + 9 - 12) = 3·14/9 = 4.67; 7 of 36 arrangements are as extreme
    ranking = table.rankings["accuracy"].ranking
    assert ranking.statistic == pytest.approx(14 / 3)
    assert any(text.startswith("No difference of ranks is significant (Friedman's test") for text in table.legend)


def test_a_rule_is_named_without_what_it_alone_has(tmp_path: Path) -> None:
    cuts = [
        {"rule": "louvain", "resolution": 1.0},
        {"rule": "files", "path": "/far/away/owners.csv"},
        {"rule": "metis"},
    ]
    paths = [
        run(tmp_path, "FedAvg", "Cora", [0.8], partition={"rule": cut["rule"], "hash": cut["rule"]},
            config={"partition": cut, "data": {"scale": "standard"} if place else {}})
        for place, cut in enumerate(cuts)
    ]  # fmt: skip
    titles = [each.title for each in grid(comparison(paths)).tables]
    assert titles == ["Cora, louvain", "Cora, files, scale standard", "Cora, metis, scale standard"]


def test_a_method_is_the_baseline_of_every_data_set(tmp_path: Path) -> None:
    table = grid(comparison(folders(tmp_path), baseline="fedavg"))
    assert [each.against["accuracy"] for each in table.tables] == [0, 0, 0]
    assert all(each.is_fixed for each in table.tables)


def test_too_few_data_sets_are_said_to_be(tmp_path: Path) -> None:
    two = {name: {key: LEVELS[name][key] for key in ("FedAvg", "FedProx")} for name in ("Cora", "CiteSeer")}
    text = " ".join(grid(comparison(folders(tmp_path, levels=two))).legend)
    assert "Too few data sets for any difference of ranks to be significant: 2 methods need 6." in text
    assert "Nemenyi" not in text


def test_six_data_sets_and_a_clear_winner(tmp_path: Path) -> None:
    six = {f"D{number}": {"FedAvg": 0.7, "FedProx": 0.8} for number in range(6)}
    text = " ".join(grid(comparison(folders(tmp_path, levels=six))).legend)
    # CD of two methods over six: 1.960 · √(2·3 / (6·6)) = 0.80; p = 2 / 2^6
    assert "Mean ranks at least 0.80 apart differ (Nemenyi, p ≤ 0.05; Friedman's test by permutation over 6" in text
    assert "p = 0.031" in text


def test_cuts_of_one_data_set_are_columns_but_not_data_sets(tmp_path: Path) -> None:
    found = []
    for number in (3, 10):
        for method, level in (("FedAvg", 0.7), ("FedProx", 0.8)):
            cut = {"clients": number, "hash": f"cut {number}"}
            found.append(run(tmp_path, method, "Cora", [level], partition=cut))
    table = grid(comparison(found))
    assert [each.title for each in table.tables] == ["Cora, 3 clients", "Cora, 10 clients"]
    assert "not independent of each other: ranks are not tested" in table.legend[-1]


def test_runs_on_other_cuts_are_not_compared(tmp_path: Path) -> None:
    table = grid(
        comparison(
            [
                run(tmp_path, "FedAvg", "Cora", [0.7]),
                run(tmp_path, "FedProx", "Cora", [0.8], partition={"hash": "another"}),
            ]
        )
    )
    assert [each.title for each in table.tables] == ["Cora, cut cut of", "Cora, cut anothe"]
    assert [line.cells[0].best or line.cells[1].best for line in layout(table).lines] == [False, False]
    assert table.warnings[0].startswith("No two runs answer the same question")


def test_one_cut_of_data_that_is_read_in_two_ways_has_two_headings(tmp_path: Path) -> None:
    """As with and without the weights of the edges."""
    read = [run(tmp_path, "FedAvg", "Cora", [0.8], data={"hash": of}) for of in ("plain", "weighted")]
    table = grid(comparison(read))
    assert [each.title for each in table.tables] == ["Cora, data plain", "Cora, data weight"]


def test_other_seeds_in_a_column_leave_it_without_a_best(tmp_path: Path) -> None:
    found = folders(tmp_path, levels={"Cora": LEVELS["Cora"]})
    found += [run(tmp_path, "FedAvg", "CiteSeer", [0.6] * 7), run(tmp_path, "FedProx", "CiteSeer", [0.7] * 3)]
    table = grid(comparison(found))
    assert [each.best["accuracy"] for each in table.tables] == [(1,), ()]
    assert "Nothing is bold or marked for CiteSeer: the runs are not comparable." in table.legend
    assert table.warnings[0].startswith("CiteSeer: The runs are not comparable: seeds differ")
    assert table.rankings == {}  # one comparable column is no ranking


def test_a_baseline_holds_in_every_column_that_has_it(tmp_path: Path) -> None:
    found = folders(tmp_path)
    extra = run(tmp_path, "FedProx", "Physics", [0.9] * 7)
    table = grid(comparison([*found, extra, run(tmp_path, "Local", "Physics", [0.8] * 7)], baseline="FedAvg"))
    marks = [[each.mark("accuracy", place) for place in range(len(each.rows))] for each in table.tables]
    assert marks == [["", "‡", "†"], ["", "†", "†"], ["", "‡", "†"], ["", ""]]
    assert any("better than 'FedAvg'" in text for text in table.legend)
    assert table.rankings["accuracy"].labels == ("FedProx", "Local")
    assert "Without FedAvg, of which a column has no score" in " ".join(table.legend)
    with pytest.raises(ConfigError, match="did you mean 'FedAvg'"):
        comparison(found, baseline="FedAvgg")


def test_one_method_under_several_settings_has_a_row_for_each(tmp_path: Path) -> None:
    found = [
        run(tmp_path, "FedProx", data, [0.7 + mu], config={"method": {"name": "fedprox", "mu": mu}})
        for data in ("Cora", "CiteSeer")
        for mu in (0.1, 0.01)
    ]
    assert grid(comparison(found)).labels == ("FedProx (mu 0.1)", "FedProx (mu 0.01)")


def test_markdown_and_csv(tmp_path: Path) -> None:
    table = comparison(folders(tmp_path, seeds=2))
    lines = to_markdown(table).splitlines()
    assert lines[0] == "| Method | Cora, % | CiteSeer, % | PubMed, % | Mean rank |"
    assert lines[3] == "| FedProx | **81.0 ± 0.1** | 67.1 ± 0.1 | **86.1 ± 0.1** | 1.33 |"
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == 9
    assert (rows[3]["column"], rows[3]["label"]) == ("CiteSeer", "FedAvg")
    assert float(rows[3]["accuracy_mean"]) == pytest.approx(0.6805)
    assert float(rows[3]["accuracy_mean_rank"]) == pytest.approx(5 / 3)


def test_latex_is_a_whole_table(tmp_path: Path) -> None:
    text = to_latex(comparison(folders(tmp_path), published=True))
    check_latex(text)
    assert r"\label{tab:cora-citeseer-pubmed-accuracy}" in text
    assert r"\multicolumn{3}{c}{Cora} & \multicolumn{3}{c}{CiteSeer}" in text
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-7} \cmidrule(lr){8-10}" in text
    assert r"\caption{Test accuracy on Cora, CiteSeer and PubMed (metis, 10 clients, 7 seeds). Scored: " in text
    # FairFGL, table II: FedAvg on Cora 81.13 ± 0.33
    assert r"FedAvg & 79.3 $\pm$ 0.2$^{\dagger}$ & 81.1 $\pm$ 0.3 & $-$1.8 & " in text


def check_latex(text: str) -> None:
    """Environments close in order, and every row has as many cells as there are columns."""
    opened: list[str] = []
    for way, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if way == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns is not None
    for line in text.splitlines():
        if line.endswith(r"\\"):
            spanned = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + spanned == len(columns[1]), line
    assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule", r"\caption", r"\label")] == [1] * 4


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    odd = run(runs, r"50%_&\x{$^~#<±–", "Cora", [0.5] * 7)
    table = to_latex(comparison([*folders(runs), odd], published=True, metrics=["accuracy", "own.accuracy"]))
    (tmp_path / "t.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}", encoding="utf-8"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
