"""`graphsilo demo` and `graphsilo examples`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from graphsilo.experiments.config import load_config

examples = import_module("graphsilo.cli.examples")
CHECKOUT = Path(__file__).resolve().parents[2]


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_every_example_is_listed_with_what_it_is(call):
    code, out, _ = call("examples")
    assert code == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[1:] if line and not line.startswith("`"))
    names = {path.name.removesuffix(path.suffix) for path in (CHECKOUT / "examples").iterdir() if path.name[0] != "_"}
    assert set(rows) == names
    assert rows["hospitals"].startswith("Three hospitals and a coordinator on one machine")
    assert all(text[0].isupper() and len(text) > 20 for text in rows.values())


def test_a_folder_is_copied_whole_and_never_over_another(call, tmp_path):
    target = tmp_path / "of" / "mine"
    code, out, _ = call("examples", "hospitals", "--to", target)
    assert code == 0
    assert out.startswith(f"{target / 'hospitals'}: ")
    assert files_of(target / "hospitals") == files_of(CHECKOUT / "examples" / "hospitals")
    assert (target / "hospitals" / "tutorial.sh").stat().st_mode & 0o100

    (target / "hospitals" / "config.yaml").write_text("mine")
    code, _, err = call("examples", "hospitals", "--to", target)
    assert code == 2
    assert "exists, and an example replaces nothing" in err
    assert (target / "hospitals" / "config.yaml").read_text() == "mine"
    assert [path.name for path in target.iterdir()] == ["hospitals"]


def test_a_file_is_copied_here(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("examples", "demo")[0] == 0
    assert load_config(tmp_path / "demo.yaml").run.references == ["alone", "trees_alone", "fedavg"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hospital",), "there is no example 'hospital'; did you mean 'hospitals'?"),
        (("demo", "--to", "/dev/null/x"), "the example cannot be written to '/dev/null/x' (Not a directory)"),
    ],
)
def test_what_cannot_be_copied_is_refused(call, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, _, err = call("examples", *arguments)
    assert code == 2
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_wins_over_the_checkout(tmp_path, monkeypatch):
    assert examples.folder() == CHECKOUT / "examples"
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(examples.resources, "files", lambda package: tmp_path)
    assert examples.folder() == tmp_path / "examples"


@pytest.mark.slow
def test_the_demo_trains_draws_and_says_where(call, tmp_path, monkeypatch):
    """The file as it is, but for smaller banks."""
    text = (CHECKOUT / "examples" / "demo.yaml").read_text(encoding="utf-8")
    (tmp_path / "demo.yaml").write_text(text.replace("{name: bank}", "{name: bank, generator: {transfers: 10000}}"))
    monkeypatch.setattr(examples, "folder", lambda: tmp_path)
    code, out, err = call("demo", "--out", tmp_path / "out")
    assert code == 0
    told = [line.split(" on ")[0] for line in err.splitlines() if not line.startswith("warning: ")]
    assert told == ["Auto", "Auto alone", "Trees alone", "FedAvg"]
    head, *rows = out.splitlines()[:5]
    assert head.split("  ")[:2] == ["Test, % (1 seed)", "Average precision"]
    assert [row.split("  ")[0] for row in rows] == told
    assert f"Report:  {tmp_path / 'out' / 'report.html'}" in out
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


def test_a_quiet_demo_says_its_folder_alone(call, tmp_path, monkeypatch):
    (tmp_path / "demo.yaml").write_text("data: {name: citation-sbm, nodes: 60, classes: 3}\nmethod: {rounds: 1}\n")
    monkeypatch.setattr(examples, "folder", lambda: tmp_path)
    assert call("demo", "-q", "--out", tmp_path / "out") == (0, f"{tmp_path / 'out'}\n", "")
