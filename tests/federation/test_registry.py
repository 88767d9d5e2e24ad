"""What a method's file says for people, without importing it."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.federation.registry import Listing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'METHOD = Method(name="mine", title="My " "own", rounds=f(3), summary="Short.")',
            ("mine", "My own", "Short."),
        ),
        ("import torch\n\nMETHOD = Method(config=Config)", ("file", "", "")),
        ('METHOD = Method(name=NAME, title="My own")', None),
        ('OTHER = METHOD = Method(name="mine")', ("mine", "", "")),
        ('OTHER = Method(name="mine")\nMETHOD = 3', None),
        ('METHOD = Method(name="mine"', None),
        ("", None),
    ],
    ids=["whole", "bare", "no literal", "two names", "no call", "cut", "empty"],
)
def test_the_line_of_a_method_is_read_without_running_it(tmp_path, text, expected):
    path = tmp_path / "file.py"
    path.write_text(text)
    found = registry._read_listing(path, "here")
    assert found == (None if expected is None else Listing(*expected, "here"))
    assert registry._read_listing(tmp_path / "missing.py", "here") is None


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two methods of other packages: one that is there, and one whose package is gone."""
    (tmp_path / "their_methods.py").write_text(
        'METHOD = Method(name="theirs", title="Theirs", summary="Short.", model={"name": "sage"})\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = (
        EntryPoint("theirs", "their_methods:METHOD", registry.GROUP),
        EntryPoint("ghost", "gone.with_it:METHOD", registry.GROUP),
    )
    monkeypatch.setattr(registry, "_installed", lambda: points)


def test_methods_of_other_packages_are_listed_without_importing_them(installed):
    found = {listing.name: listing for listing in registry.listings()}
    assert found["theirs"] == Listing("theirs", "Theirs", "Short.", "their_methods")
    assert found["ghost"] == Listing("ghost", "ghost", "", "gone.with_it")
    assert found["fedavg"].source == "graphsilo"
    assert list(found) == sorted(found)
    assert registry.load("fedavg").name == "fedavg"
    assert registry.usual_model("theirs") == {"name": "sage"}
    assert registry.usual_model("ghost") is None


def test_the_backbone_of_a_paper():
    assert registry.usual_model("FedSage+") == registry.load("fedsage_plus").model == {"name": "sage", "hidden": 64}
    assert registry.usual_model("fedavg") is None
    assert registry.usual_model("nothing_of_that_name") is None


def test_what_is_no_method(monkeypatch):
    with pytest.raises(ConfigError, match="unknown method 'fedavgg'; did you mean 'fedavg'"):
        registry.load("fedavgg")
    point = EntryPoint("odd", "graphsilo.types:ClientId", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: (point,))
    with pytest.raises(ConfigError, match=r"method 'odd' must define METHOD = Method\(\.\.\.\); type came"):
        registry.load("odd")
