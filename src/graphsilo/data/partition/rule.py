"""What a rule that cuts a graph says of itself, is asked, and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from graphsilo.settings import Settings, must_be, setting
from graphsilo.types import NodeIds

if TYPE_CHECKING:
    from graphsilo.data.partition.splits import Split

OPENFGL = "OpenFGL (Li et al., PVLDB 2024/25)"
LARGEST_SEED = 2**32 - 1
"""Of cuts and splits: what NumPy's, scikit-learn's and Metis' generators take alike."""

Seed: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
SplitMode: TypeAlias = Literal["stratified", "global", "predefined", "time"]


def _moment(value: Any) -> Any:
    if isinstance(value, date):  # which times of day are, too
        return value.isoformat()
    try:
        return value if not isinstance(value, str) else datetime.fromisoformat(value) and value
    except ValueError:
        raise must_be("a day such as 2025-03-31, or a number where times of nodes are numbers") from None


Moment: TypeAlias = Annotated[float | str, BeforeValidator(_moment)]
"""Type of a setting that is a point in time: an ISO date, which means the end of that day, or a number."""
SplitBy: TypeAlias = Literal["silo", "federation"]
BY_TIME = {"split": ("time",)}
"""Where settings of a split by time matter."""


class PartitionOptions(Settings):
    """Base of the settings of a rule."""

    section: ClassVar[str] = "partition"


class TimeOptions(PartitionOptions):
    """How items are divided by time, as a run's ``partition`` says it."""

    train_until: Moment | None = setting(None, "the last day (or number) of training items; none: as ratios say")
    val_until: Moment | None = setting(None, "and of validation items; later ones are for tests")
    split_by: SplitBy | None = setting(None, "whose items ratios count; none: all silos'")


class CutOptions(TimeOptions):
    """What every cut is given beside the settings of its rule."""

    clients: int = setting(10, "number of clients", ge=1)
    seed: Seed = setting(2024, "seed of the cut and its splits; apart from the seeds of training", source="OpenFGL")
    split: SplitMode | None = setting(None, "how each client's items are divided; none: the rule's way")
    split_index: int = setting(0, "which of several predefined splits", ge=0)


@dataclass(frozen=True, eq=False)
class Cut:
    """The nodes of each client, and what a rule adds beside them.

    Attributes:
        nodes: Global ids of each client, in the client's own order.
        added_edges: [2, m_k] new links of each client in global ids, each once, or None.
        splits: Splits that the rule brings itself (a stored partition), or None.
        new_part: Nodes of a client that never trains, or None (a stored partition).
        cropped: Nodes kept away from everyone until test time, or None (a stored partition).
    """

    nodes: tuple[NodeIds, ...]
    added_edges: tuple[NDArray[np.int64], ...] | None = None
    splits: tuple[Split, ...] | None = None
    new_part: NodeIds | None = None
    cropped: NodeIds | None = None


@dataclass(frozen=True)
class Rule:
    """One way to cut a graph.

    Attributes:
        name: As a user writes it.
        summary: One line.
        options: Class of its settings.
        cut: (graph, clients, seed, options) -> Cut; for collections of graphs, of a list of these.
        split: How splits are made unless something else is asked for.
        source: Paper or code base.
        counts: Whether ``cut`` can tell the number of clients, and takes None for it.
        with_new: Settings that are usual where a further part becomes a new client (scenarios ``unseen``, ``open``).
    """

    name: str
    summary: str
    options: type[PartitionOptions]
    cut: Callable[[Any, Any, int, Any], Cut]
    split: SplitMode = "stratified"
    source: str = ""
    counts: bool = False
    with_new: Mapping[str, Any] = field(default_factory=dict)
