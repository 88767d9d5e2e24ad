"""Descriptions of tables that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.data import load_tables
from graphsilo.errors import ConfigError
from kit.tables import rewrite


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classes:", "clases:", r"unknown setting 'clases'; did you mean 'classes'"),
        ("features:", "feature:", r"unknown setting 'nodes\.feature'; did you mean 'nodes\.features'"),
        ("id: patient, ", "", r"nodes\.id is missing; it must be text"),
        ("classes:", "directed: maybe\nclasses:", r"directed must be true or false; got 'maybe'"),
        ('["no", "yes"]', "[no, yes]", r"classes must be a list of names \(YAML .* quote such words\); got \[False"),
        ('["no", "yes"]', "[a, a]", r"classes must be a list of names, each once \('a' stands there twice\)"),
        ("smoker]", "outcome]", r"'outcome' is the label column"),
        ("smoker]", "1.5]", r"nodes\.features\.2 must be text; got 1\.5"),
        ("id: patient", "id: [patient]", r"nodes\.id must be text; got \['patient'\]"),
    ],
)
def test_yaml_mistakes(folder: Path, old: str, new: str, message: str) -> None:
    path = rewrite(folder, "a.yaml", old, new)
    with pytest.raises(ConfigError, match=message):
        load_tables(path)
