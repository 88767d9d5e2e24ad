"""What the shell offers on a tab, asked for as the shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphsilo.cli import complete


def offered(line: str, folder: Path, **environment: str) -> list[str]:
    """The values behind a line, whose last word is being typed."""
    words = line.split(" ")
    asked = {"_GRAPHSILO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-c", "from graphsilo.cli import main; main()"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, **asked, **environment}, check=False
    )
    return [word for word in done.stdout.splitlines() if word]


def test_the_shell_gets_names(tmp_path):
    assert "fedprox" in offered("graphsilo run --method fedp", tmp_path)
    assert offered("graphsilo list part", tmp_path) == ["partitions"]


@pytest.mark.slow
def test_the_shell_gets_settings_of_the_chosen_method(tmp_path):
    found = offered("graphsilo run --method fedprox --set method.mu", tmp_path)
    assert found == ["method.mu=0.01"]


def test_names_of_every_kind():
    assert "LOUVain+" in [name for name, _ in complete.partitions("LOUV")]  # whatever the case, which shells keep
    assert [name for name, _ in complete.data("cites")] == ["citeseer"]
    assert [name for name, _ in complete.papers("fair")] == ["fairFGL"]
    assert [name for name, _ in complete.examples("hos")] == ["hospitals"]
    assert [name for name, _ in complete.models("gcni")] == ["gcnii", "gcnii_openfgl"]
    assert [name for name, _ in complete.scenarios("un")] == ["unseen"]
    tasks = ["graph", "link", "multilabel", "node", "regression"]
    assert sorted(name for name, _ in complete.words_of("task")("")) == tasks
    assert [name for name, _ in complete.words_of("run.precision")("b")] == ["bfloat16"]
    assert [name for name, _ in complete.devices("cu")] == ["cuda"]
    assert [name for name, _ in complete.references("g")] == ["global", "global_cut"]
    assert len({name for name, _ in complete.topics("fedp")}) == len(complete.topics("fedp"))
    assert {"pubMed", "perturb", "policy", "partition"} <= {name for name, _ in complete.topics("p")}


class Context:
    """What the argument parser hands over."""

    def __init__(self, **params):
        self.params = params


def test_settings_come_section_by_section():
    assert [name for name, _ in complete.settings(Context(), "m")] == ["model.", "method."]
    run = [name for name, _ in complete.settings(Context(), "run.secure")]
    assert run == ["run.secure_sums=false", "run.secure_sums=true"]
    of_rule = [name for name, _ in complete.settings(Context(partition="dirichlet"), "partition.al")]
    assert [name.partition("=")[0] for name in of_rule] == ["partition.alpha"]
    assert complete.settings(Context(partition="nothing"), "partition.al") == []
    generated = [name for name, _ in complete.settings(Context(data=["citation-sbm"]), "data.no")]
    assert any(name.startswith("data.nodes=") for name in generated)
    assert not any(name.startswith("method.name=") for name, _ in complete.settings(Context(), "method.n"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("runs/one", "runs/two", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs/one/result.json").write_text("{}", encoding="utf-8")
    for name in ("a.yaml", "a.txt", ".hidden.yaml", "other/b.npz"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
def test_folders_of_runs_and_files():
    assert [name for name, _ in complete.runs("")] == ["runs/one", "runs/two/"]
    assert [name for name, _ in complete.runs("o")] == ["other/"]
    assert [name for name, _ in complete.configurations("")] == ["a.yaml", "other/", "runs/"]
    assert [name for name, _ in complete.configurations(".h")] == [".hidden.yaml"]
    assert [name for name, _ in complete.data("other/")] == ["other/b.npz"]
    assert [name for name, _ in complete.data("./a")] == ["./a.yaml"]
    assert complete.runs("nowhere/") == []


def test_names_need_no_torch():
    code = "from graphsilo.cli import complete as c; [f('a') for f in (c.methods, c.data, c.models, c.topics)]"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('torch' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
