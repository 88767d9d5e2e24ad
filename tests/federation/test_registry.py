"""What a method's file says for people, without importing it."""

from __future__ import annotations

import pytest

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
