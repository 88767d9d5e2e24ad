"""What a person may say of columns that are added up over links (:mod:`graphsilo.data.sources.link_columns`)."""

from __future__ import annotations

from typing import ClassVar

from graphsilo.settings import Positive, Settings, setting


class Sums(Settings):
    """What is told of the links of a node beside all of them."""

    section: ClassVar[str] = "sums"

    windows: tuple[Positive, ...] = setting((), "days: the links of the last so many days are told of once more each")


def windows_of(said: bool | Sums) -> tuple[float, ...] | None:
    """The windows that were asked for, none or some; None where nothing is to be added up."""
    return said.windows if isinstance(said, Sums) else () if said else None
