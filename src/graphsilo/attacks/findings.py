"""What attacks found on public data, method by method: ``findings.yaml``, which ``benchmarks/attacks.py`` writes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec

from graphsilo import documents
from graphsilo.errors import DataError


class Finding(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One figure.

    Attributes:
        method: Its name.
        variant: What of its settings is not the default; empty for none.
        attacker: ``coordinator``, ``silo`` or ``reader``.
        attack, figure: As in ``attack.json``.
        value, low, high: Success and its 95 % interval.
        prior: The same figure without the run.
        targets: How many things were guessed.
        data: What it was measured on.
        commit: Version of the code that measured it.
    """

    method: str
    variant: str
    attacker: str
    attack: str
    figure: str
    value: float
    low: float
    high: float
    prior: float | None
    targets: int
    data: str
    commit: str

    @property
    def succeeds(self) -> bool:
        """Whether the whole interval is above the prior."""
        return self.low > (self.prior or 0.0)


COLUMNS = Finding.__struct_fields__


@cache
def load() -> tuple[Finding, ...]:
    """All findings, in the file's order.

    Raises:
        DataError: The file is damaged.
    """
    text = resources.files("graphsilo.attacks").joinpath("findings.yaml").read_text(encoding="utf-8")
    return parse(text)


def parse(text: str) -> tuple[Finding, ...]:
    """Findings from a file's text: a table with ``columns`` and ``rows``.

    Raises:
        DataError: It has another form.
    """
    tree = documents.parse(text, "findings.yaml") or {}
    try:
        rows = [dict(zip(tree["columns"], row, strict=True)) for row in tree["rows"]]
        return tuple(msgspec.convert(rows, list[Finding]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"findings.yaml does not have the form of findings: {error}.") from None


def about(method: str, variant: str | None = None, *, among: Iterable[Finding] | None = None) -> tuple[Finding, ...]:
    """What is known of a method, of one variant or of all."""
    known = load() if among is None else among
    return tuple(each for each in known if each.method == method and variant in (None, each.variant))
