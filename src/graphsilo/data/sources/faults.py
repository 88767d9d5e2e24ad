"""Everything that is wrong with what a person wrote, listed at once: each round of mend and try again costs a day."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import ConfigError, DataError, GraphsiloError

MAX_FAULTS = 20
"""Faults that are listed before the rest is only counted."""

UNSEEN = "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
"""Characters that end lines, steer terminals or turn the order of words round, as a class of regular expressions."""


class Faults:
    """Collects errors until :meth:`raise_if_any`."""

    def __init__(self, where: str | Path) -> None:
        self.where = where
        self.found: list[GraphsiloError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Goes on after an error: what comes behind the block must not need what the block was to make."""
        try:
            yield
        except (ConfigError, DataError) as error:
            self.found += getattr(error, "faults", [error])

    def raise_if_any(self) -> None:
        """Raises what was found, as one error.

        Raises:
            ConfigError: Only the description is wrong.
            DataError: Otherwise.
        """
        if not self.found:
            return
        if len(self.found) == 1:
            raise self.found[0]
        lines = [f"{number}. {error}" for number, error in enumerate(self.found[:MAX_FAULTS], start=1)]
        if len(self.found) > MAX_FAULTS:
            lines.append(f"And {len(self.found) - MAX_FAULTS} more.")
        # A fault of the data names values, and must stay at the silo: one of them makes the whole such an error.
        kind = ConfigError if all(isinstance(error, ConfigError) for error in self.found) else DataError
        error = kind("\n".join([f"{self.where}: {len(self.found)} faults are to be mended.", *lines]))
        setattr(error, "faults", self.found)  # noqa: B010  # for who collects from several places
        raise error


def lookalike(word: str, known: Iterable[str]) -> str | None:
    """The known word that differs by blanks or case alone, else one that is spelled almost the same.

    Example:
        >>> lookalike("Home ", ["home", "rehab"]), lookalike("hoem", ["home", "rehab"]), lookalike("died", ["home"])
        ('home', 'home', None)
    """
    listed = list(known)
    plain = "".join(word.split()).casefold()
    same = [other for other in listed if "".join(other.split()).casefold() == plain]
    close = same or difflib.get_close_matches(word.strip(), listed, n=1, cutoff=0.7)
    return close[0] if close else None


def name_fault(name: str) -> str | None:
    """Why a name of a class, a feature or a data set cannot be taken, in words; None where it can.

    Such names are written into logs, terminals and tables of others: they must not look like lines of a log, and a
    program of spreadsheets must not take one for a formula.

    Example:
        >>> name_fault("=HYPERLINK(A1)"), name_fault("-1"), name_fault("ward")
        ("begins with '=', which a spreadsheet takes for a formula", None, None)
    """
    if name[:1] in ("=", "@") or (name[:1] in ("+", "-") and name[1:] and not is_number(name)):
        return unseen_fault(name) or f"begins with '{name[0]}', which a spreadsheet takes for a formula"
    return unseen_fault(name)


def unseen_fault(name: str) -> str | None:
    """Why a word cannot be shown to others, in words; None where it can."""
    found = re.search(f"{UNSEEN}|[\ud800-\udfff]", name)
    return None if found is None else f"holds the unseen character U+{ord(found.group()):04X}"


def is_number(text: str) -> bool:
    """Whether Python reads a number there."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_finite(item: Graph | GraphCollection) -> None:
    """Refuse NaN and infinity among the features: one such number would silently spoil every model.

    Raises:
        DataError: Names the first one.
    """
    graph = item.union
    values = graph.features.data if sp.issparse(graph.features) else np.asarray(graph.features)
    # A finite sum proves that every entry is finite; an overflowing sum of finite entries is looked at again.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad) == 0:
        return
    value, row, column = values.flat[bad[0]], *divmod(int(bad[0]), max(graph.num_features, 1))
    if sp.issparse(graph.features):
        row = int(np.searchsorted(graph.features.indptr, bad[0], side="right") - 1)
        column = int(graph.features.indices[bad[0]])
    name = f" ('{graph.feature_names[column]}')" if graph.feature_names else ""
    raise DataError(
        f"{item.name}: feature {column}{name} of node {row} is {value}, and {len(bad)} features in all are NaN or "
        f"infinite. Models need finite numbers: fill in or drop what is missing."
    )
