"""The commands and their flags."""

from __future__ import annotations

import pytest

from kit.main import imported_by


def test_help_and_version(call):
    code, out, _ = call("--help")
    assert code == 0
    for command in ("run", "list", "explain", "partition", "compare", "report", "predict", "doctor"):
        assert command in out
    assert call()[0] == 0  # without a command: the same help
    code, out, _ = call("--version")
    assert (code, out.split()[0]) == (0, "graphsilo")


def test_help_imports_nothing_heavy():
    assert imported_by(("--help",), ("run", "--help")) == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "no such command 'rum'. Did you mean 'run'?"),
        (["check"], "no such command 'check'. Did you mean 'silo check'?"),
        (["run", "--metod", "x"], "--method"),
        (["run", "--method", "fedavgg"], "did you mean 'fedavg'?"),
        (["run", "--set", "method.muu=1", "--method", "fedprox"], "did you mean 'method.mu'?"),
        (["run", "--set", "rounds"], "--set needs NAME=VALUE"),
        (["run", "--data", "Corra"], "did you mean 'Cora'?"),
        (["run", "--seeds", "one"], "--seeds takes whole numbers"),
        (["run", "--workers", "0"], "run.workers"),
        (["run", "nowhere.yaml"], "the configuration nowhere.yaml does not exist"),
        (["list", "model"], "did you mean 'models'?"),
        (["explain", "fedavgg"], "did you mean 'fedavg'?"),
        (["predict"], "--run"),
        (["partition", "--rule", "louvian"], "did you mean 'louvain'?"),
    ],
)
def test_wrong_usage_is_one_paragraph_and_exit_code_2(call, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert err.startswith("graphsilo: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())  # nothing is left behind
