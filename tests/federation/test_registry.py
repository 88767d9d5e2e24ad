"""What a method's file says for people, without importing it."""

from __future__ import annotations

import dataclasses
from importlib.metadata import EntryPoint

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.federation.registry import Listing
from graphsilo.testing.conformance import messages_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'import torch\n\nX = f(METHOD)\nMETHOD = Method(\n    name="mine",\n    about="My " "own",\n    config=C,\n'
            '    model={"name": "sage"},\n)\n',
            Listing(name="mine", about="My own", model={"name": "sage"}),
        ),
        ('METHOD: Method = Method(name="mine", quick={"rounds": 2}, tasks=("node",))', None),
        ('OTHER = METHOD = Method(name="mine")', Listing(name="mine")),
    ],
    ids=["whole", "annotated", "two names"],
)
def test_the_statement_of_a_method_is_read_without_running_it(tmp_path, text, expected):
    path = tmp_path / "file.py"
    path.write_text(text)
    assert registry._read(path) == (expected or Listing(name="mine", quick={"rounds": 2}, tasks=("node",)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '\n\nMETHOD = Method(name="mine",\n  about="Fed" + PROX)',
            r"file.py, line 4: 'about' must be written out.*'Fed' \+ PROX",
        ),
        ("\nMETHOD = Method(config=Config)", r"file.py, line 2: METHOD says no name"),
        (
            'OTHER = Method(name="mine")\nMETHOD = 3',
            r"file.py, line 2: METHOD is no call; a method's file says METHOD = ",
        ),
        ('METHOD = Method(name="mine"', r"file.py, line 1: '\(' was never closed"),
        ("", r"file.py: there is no METHOD; .* Other files begin with an underscore"),
    ],
    ids=["no literal", "no name", "no call", "cut", "empty"],
)
def test_a_method_that_cannot_be_read_never_vanishes(tmp_path, text, complaint):
    path = tmp_path / "file.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        registry._read(path)


def test_two_entries_cannot_have_one_name(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text('METHOD = Method(name="mine")')
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "__init__.py").write_text('METHOD = Method(name="mine")')
    (tmp_path / "two" / "numerics.py").write_text("")
    (tmp_path / "_shared.py").write_text("")
    monkeypatch.setattr(registry, "_FOLDER", tmp_path)
    registry._entries.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"__init__.py: there are two methods with the name 'mine'"):
            registry.listings()
    finally:
        registry._entries.cache_clear()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *(
            (name, "fedsage_plus")
            for name in ("fedsage_plus", "FedSage+", "fedsage-plus", "FEDSAGE_PLUS", "FedSagePlus")
        ),
        ("FedSage", "fedsage"),
        ("O-pFGL", "opfgl"),
        ("Local only", "local"),  # its title
        ("Standalone", "local"),  # an alias
        ("Focal-Loss", "focal"),
        ("nobody-Knows", "nobody_knows"),
    ],
)
def test_spellings_of_a_name(name, method):
    assert registry.resolve_name(name) == method


def test_no_spelling_is_of_two_methods():
    spelt = [
        (registry.plain_name(text), each.name)
        for each in registry.listings()
        for text in (each.name, each.title, *each.aliases)
    ]
    assert len(dict(spelt)) == len(set(spelt))


def test_what_is_listed_is_what_a_method_says():
    fields = [field.name for field in dataclasses.fields(Listing) if field.name != "source"]
    for listing in registry.listings():
        method = registry.load(listing.name)
        for name in fields:
            assert getattr(listing, name) == getattr(method, name), (listing.name, name)


def test_a_setting_means_what_the_nearest_base_says():
    """Of several bases pydantic takes a field of the first that has it, though another base overrides it."""
    for name in registry.names():
        config = registry.load(name).config
        for key, shown in config.model_fields.items():
            nearest = next(base for base in config.__mro__ if key in vars(base).get("__annotations__", {}))
            assert shown.description == nearest.model_fields[key].description, (name, key)


def test_names_of_methods_on_the_wire():
    """A method's package may be divided as it likes: what crosses is named after the method, or its base."""
    names = {message.wire_name() for name in registry.names() for message in messages_of(registry.load(name))}
    assert {"fedavg.TrainReply", "fedlog.TrainReply", "fedridge.Statistics"} <= names
    places = {name.partition(".")[0] for name in names}
    assert places <= {listing.name for listing in registry.listings()} | {
        "candidates",
        "client",
        "message",
        "one_shot",
        "prototypes",
        "release",
        "scaling",
    }


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two methods of other packages: one that is there, and one whose package is gone."""
    (tmp_path / "their_methods.py").write_text(
        'METHOD = Method(name="theirs", about="Theirs — short.", model={"name": "sage"})\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = (
        EntryPoint("theirs", "their_methods:METHOD", registry.GROUP),
        EntryPoint("ghost", "gone.with_it:METHOD", registry.GROUP),
    )
    monkeypatch.setattr(registry, "_find_installed", lambda: points)


def test_methods_of_other_packages_are_listed_without_importing_them(installed):
    found = {listing.name: listing for listing in registry.listings()}
    assert found["theirs"] == Listing(
        name="theirs", about="Theirs — short.", model={"name": "sage"}, source="their_methods"
    )
    assert found["ghost"] == Listing(name="ghost", source="gone.with_it")
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
    monkeypatch.setattr(registry, "_find_installed", lambda: (point,))
    with pytest.raises(ConfigError, match=r"method 'odd' must define METHOD = Method\(\.\.\.\); type came"):
        registry.load("odd")
