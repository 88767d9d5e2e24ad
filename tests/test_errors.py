"""The tree of errors, and how values and names appear in their texts."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from graphsilo import errors
from graphsilo.errors import GraphsiloError, installing, library, nearest, one_line, quote, several


def test_exit_codes() -> None:
    codes = {kind.__name__: kind.exit_code for kind in _all(GraphsiloError)}
    assert codes == {
        "ConfigError": 2, "DataError": 2, "PartitionError": 2, "UnsupportedError": 2, "MessageError": 1,
        "RequestError": 1,
        "DisclosureError": 1, "FederationError": 1, "RunError": 1,
    }  # fmt: skip
    assert issubclass(errors.PartitionError, errors.DataError)


def _all(kind: type[GraphsiloError]) -> list[type[GraphsiloError]]:
    here = [one for one in kind.__subclasses__() if one.__module__ == "graphsilo.errors"]
    return [*here, *(deeper for one in here for deeper in _all(one))]


@pytest.mark.parametrize(
    ("name", "choices", "text"),
    [
        ("mue", ["mu", "rounds"], "did you mean 'mu'?"),
        ("CORA", ["Cora", "PubMed"], "did you mean 'Cora'?"),
        ("gnc", ["sgc", "gcn"], "did you mean 'gcn'?"),
        ("xyz", ["b", "a", "a"], "known: a, b."),
        ("two", [2, 0, 1], "known: 0, 1, 2."),
        ("x", [], "there is nothing to choose from."),
    ],
)
def test_what_was_most_likely_meant(name: str, choices: list[str], text: str) -> None:
    assert nearest(name, choices) == text


def test_values_are_never_long() -> None:
    assert quote([1, 2]) == "[1, 2]"
    assert quote(list(range(100))) == "[0, 1, 2, 3, 4, 5, ...]"
    assert len(quote([["x" * 1000] * 100] * 100)) <= 300
    assert several(range(3), 3) == "0, 1, 2"
    assert several(range(5), 3) == "0, 1, 2 and 2 more"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://user:S3cret@127.0.0.1:9/api", "http://***@127.0.0.1:9/api"),
        ("mlflow:https://S3cret@host", "mlflow:https://***@host"),
        ("(postgresql+psycopg://u:p@S3cret@h/db) and", "(postgresql+psycopg://***@h/db) and"),
        ("http://user:S3/cret@host/x", "http://***@host/x"),
        ("at https://h:80/x?a=1&api_key=S3cret b", "at https://h:80/x?a=1&api_key=*** b"),
        ("https://h/x?Access_Token=S3cret'", "https://h/x?Access_Token=***'"),
        *((text, text) for text in ("me@example.org", "http://h:80/a@b", "http://h/x?page=2 a@b", "a: b@c", "//a@b")),
    ],
)
def test_no_text_holds_the_secrets_of_an_address(text: str, told: str) -> None:
    assert errors.without_secrets(text) == told
    assert str(GraphsiloError(text)) == told
    assert one_line(text) == told
    assert quote(text) == repr(told)
    assert "S3cret" not in one_line(f"{'x' * 20}{text}", 40)  # what is cut is cut afterwards


@pytest.mark.parametrize("part", ["z", "a://b:x", "?token", "://", "a:", "@"])
def test_a_long_text_takes_no_time(part: str) -> None:
    assert errors.without_secrets(part * 20_000).startswith(part[:1])  # hours, were it to look back and back again


def test_texts_of_others_steer_no_terminal() -> None:
    assert one_line("worker died\n\x1b[2Jbye") == "worker died  [2Jbye"
    assert one_line("x" * 2000) == f"{'x' * 1000} …"


@pytest.mark.parametrize(
    ("classifiers", "said"),
    [
        (["Private :: Do Not Upload"], "`'/a place/python' -m pip install '.[tune]'` in the clone of graphsilo."),
        ([], "`'/a place/python' -m pip install 'graphsilo[tune]'`."),
        (None, "`'/a place/python' -m pip install '.[tune]'` in the clone of graphsilo."),
    ],
    ids=["on no index", "on an index", "not installed"],
)
def test_what_is_missing_is_got_from_where_the_package_is(
    monkeypatch: pytest.MonkeyPatch, classifiers: list[str] | None, said: str
) -> None:
    def of(name: str) -> SimpleNamespace:
        if classifiers is None:
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(get_all=lambda key, failing: classifiers)

    monkeypatch.setattr(metadata, "metadata", of)
    monkeypatch.setattr(sys, "executable", "/a place/python")
    assert installing("tune") == f"Get it with {said}"
    with pytest.raises(errors.UnsupportedError, match=r"^nothere is not installed, which this needs\. Get it with `"):
        library("nothere.part", "tune")
