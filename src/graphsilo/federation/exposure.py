"""What a sum over a few rows gives away to whoever sees a silo's share of it, in words for both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphsilo.errors import several

_MAX = 8
"""Silos that are named before the rest is only counted."""


def warn_silo(title: str, columns: int, class_counts: Sequence[int], minimum: int) -> str:
    """A warning for the owner of a silo; empty where there is nothing to warn of.

    Args:
        title: Of the method.
        columns: p, as ``MethodConfig.square_columns`` says.
        class_counts: [C] training items of each class.
        minimum: Classes with fewer are left out of the sums.
    """
    rows = sum(count for count in class_counts if count >= minimum)
    if not 0 < rows < columns:
        return ""
    single = " The sums of a class with one item are its row." if minimum <= 1 and 1 in class_counts else ""
    return (
        f"{title} sends sums of products over up to {columns} columns, and this silo has {rows} rows to add up: "
        f"whoever sees its share, as the coordinator does without secure sums, can compute what these rows span."
        f"{single} A smaller method.dim or a larger method.min_count tells less; policy.min_class_count keeps small "
        f"classes in, and policy.kinds without 'statistic' all of it."
    )


def warn_coordinator(title: str, columns: int, rows: Mapping[str, int]) -> str:
    """The same of all silos, for the run's result.

    Args:
        title: Of the method.
        columns: p.
        rows: Training items of each silo, by name.
    """
    few = [f"'{name}' ({count} training items)" for name, count in rows.items() if 0 < count < columns]
    if not few:
        return ""
    return (
        f"{title} sends sums of products over up to {columns} columns, and {several(few, _MAX)} "
        f"{'has' if len(few) == 1 else 'have'} fewer rows to add up: this coordinator, who adds up in plain, could "
        f"compute what the rows of each span. A smaller method.dim tells less, method.min_count leaves classes of few "
        f"items out; a silo may refuse by its policy."
    )
