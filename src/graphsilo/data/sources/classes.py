"""Classes as they are meant: how many there are, and whether -1 is one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import DataError

SIGNED = ("-1", "1")
"""Names of two classes that are written so."""
SPARE, TIMES = 16, 2
"""A class may be numbered so far beyond so many times the classes that there are."""

Item = TypeVar("Item", bound="Graph | GraphCollection")
ClassNames: TypeAlias = "tuple[str, ...] | None"


def settle_classes(items: Sequence[Item]) -> list[Item]:
    """One person's data, or several silos', with their classes as they are meant.

    Raises:
        DataError: There are said to be far more classes than labels.
    """
    labels = sum(int((item.labels >= 0).sum()) for item in items)
    classes = max(item.num_classes for item in items)
    if classes > max(SPARE, labels) and labels:
        raise DataError(
            f"{items[0].name}: there are said to be {classes} classes, and only {labels} labels are there. Number the "
            f"classes from 0 without gaps, and say how many there are (num_classes)."
        )
    names = [item.union.class_names for item in items]
    # Who has labels -1 and 1 alone among others that number their classes from 0 has unknown ones, too.
    return [_renumber(item) if None in names and item.union.class_names == SIGNED else item for item in items]


def is_signed(words: Iterable[str]) -> bool:
    """Whether these are all words of labels, and of the two classes -1 and 1.

    Example:
        >>> is_signed(["+1", "-1"]), is_signed(["-1", "0", "1"])
        (True, False)
    """
    return {word.removeprefix("+") for word in words} - {"nan", "NaN"} == set(SIGNED)


def signed_note(class_names: ClassNames) -> tuple[str, ...]:
    """Says so where -1 is a class."""
    if class_names is None or not is_signed(class_names):
        return ()
    return (
        "the labels are -1 and 1, which are taken as two classes: where -1 stands for unknown, leave those labels "
        "empty (NaN).",
    )


def _renumber(item: Item) -> Item:
    labels = 2 * item.labels - 1
    labels[item.labels < 0] = -1
    if isinstance(item, GraphCollection):
        return replace(item, labels=labels, union=replace(item.union, class_names=None))
    return replace(item, labels=labels, class_names=None)
