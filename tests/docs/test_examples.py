"""Examples that take minutes as they are, on a tiny graph."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = (
    "data.generator={nodes: 90, classes: 4, features: 20, feature_density: 0.2}", "method.generator_epochs=1",
    "method.networks=1", "method.prototypes=2", "method.embedding_dim=8", "model.hidden=[8]",
)  # fmt: skip


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fedlog_reliability(capsys):
    """One table per question: five kinds of knowledge, one column per receiver, accuracies in percent."""
    module = example("fedlog_reliability")
    settings = [word for setting in TINY for word in ("--set", setting)]
    module.main(["--data", "citation-sbm", "--clients", "2", "--rounds", "2", *settings])
    blocks = capsys.readouterr().out.strip().split("\n\n")
    assert [block.partition(":")[0] for block in blocks] == ["missing class", "unseen node", "new client"]
    for block in blocks:
        _, head, *rows = block.splitlines()
        assert head.split() == ["receiver", "0", "receiver", "1"]
        assert [row.split()[0] for row in rows] == list(module.KNOWLEDGE)
        for row in rows:
            values = [value for value in row.split()[1:] if value != "/"]
            assert len(values) == 4
            assert all(value == "–" or 0 <= float(value) <= 100 for value in values)
