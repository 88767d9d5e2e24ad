"""What differences between runs mean, in words."""

from __future__ import annotations

from graphsilo.cli.contribution import describe


def test_differences_in_words():
    assert describe(0.02, -0.01) == "the others are better with it by 0.020; it is better alone by 0.010"
    assert describe(0.0, float("nan")) == "no matter to the others; not known for want of test items"
