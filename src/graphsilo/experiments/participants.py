"""Whom a run is carried out with: what the runner knows of data and cut, wherever the data is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from graphsilo.data.scales import UNSCALED, Scaling
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import several
from graphsilo.evaluate.metrics import METRICS, Metric, list_selecting
from graphsilo.types import ClientId, Task

if TYPE_CHECKING:
    from graphsilo.experiments.config import EvaluationConfig
    from graphsilo.federation.client import ModelSpec
    from graphsilo.federation.ledger import Ledger
    from graphsilo.runtime.exchange import Exchange
    from graphsilo.runtime.lost import StateLost
    from graphsilo.runtime.setup import ClientSetup

LOPSIDED = 80
"""Percent of the training items, to the whole percent, that the commonest class may have before accuracy says little:
above it macro-F1 chooses."""
_MAX = 8
"""Classes or clients that are named before the rest is only counted."""


@dataclass(frozen=True, kw_only=True)
class Participants(ABC):
    """Everything a run, its checks and its result need of the participants' data, without the data itself.

    Attributes:
        clients: Numbers of the clients, ascending; one for data pooled in one place.
        task: Of the run.
        schema: What all clients agree on.
        models: Backbone of each client.
        rule: By which rule the data came to the clients.
        num_holders: How many clients the data was cut for, pooled afterwards or not.
        data: Name and counts of the data.
        data_hash: sha256 over what is known of the data.
        cut: Counts per client, and where the data was cut here, what the cut did to the graph.
        cut_hash: Stands for the cut in a fingerprint.
        cut_seed: Of the cut; None where nothing was drawn here.
        has_edge_weights: Whether edges have weights.
        notes: What else a person should know.
        scaling: How features are scaled before a model sees them.
        without: Clients of the cut that were left out.
        names: What clients are called, where they have names.
        trained: Training items of each class, at all clients together; None of links.
    """

    clients: tuple[ClientId, ...]
    task: Task
    schema: Schema
    models: Mapping[ClientId, ModelSpec]
    rule: str
    num_holders: int
    data: Mapping[str, Any]
    data_hash: str
    cut: dict[str, Any]
    cut_hash: str
    cut_seed: int | None = None
    has_edge_weights: bool
    notes: tuple[str, ...] = ()
    scaling: Scaling = UNSCALED
    without: tuple[ClientId, ...] = ()
    names: Mapping[ClientId, str] = field(default_factory=dict)
    trained: tuple[int, ...] | None = None
    has_data: ClassVar[bool] = False
    """Whether the data itself is here."""

    def name_clients(self, clients: Sequence[ClientId]) -> str:
        """Clients in words, by the names of their silos where they have some."""
        return client_words(clients, {row["client"]: row.get("silo") for row in self.cut["per_client"]})

    @property
    def test_times(self) -> Sequence[Any]:
        """[items] of each silo: when its test items are looked at, where that is known here."""
        return ()

    @property
    def holders(self) -> tuple[ClientId, ...]:
        """Numbers of the clients whose data is part of the run, pooled or not, ascending."""
        return tuple(row["client"] for row in self.cut["per_client"])

    @property
    def commonest(self) -> tuple[int, float]:
        """The class that most training items have, the first of equals, and its percentage; 0 where none is known."""
        counts = self.trained or (0,)
        return counts.index(max(counts)), 100 * max(counts) / max(1, sum(counts))

    @property
    def is_lopsided(self) -> bool:
        """Whether one class is so common that a score which counts all items alike says little."""
        return round(self.commonest[1]) > LOPSIDED

    @property
    def rare(self) -> int | None:
        """Of two classes the one that fewer training items have, the second of equals; None of more."""
        return None if self.trained is None or len(self.trained) != 2 else 1 - self.commonest[0]

    @property
    def cut_facts(self) -> dict[str, Any]:
        """Rule, number of clients, seed and hash of the cut, and what else the result says of it."""
        return {
            "rule": self.rule, "clients": self.num_holders, "seed": self.cut_seed, "hash": self.cut_hash,
            "without": [
                {"client": client, **({"silo": self.names[client]} if client in self.names else {})}
                for client in self.without
            ],
            **self.cut,
        }  # fmt: skip

    def warnings(self) -> list[str]:
        """What a person should know of this cut before believing a number."""
        found = [] if self.task == "link" else per_client_warnings(self.cut["per_client"])  # of labelled items
        if self.cut.get("train_test_overlap"):
            found.append(
                f"{self.cut['train_test_overlap']} nodes are trained on at one client and tested at another "
                f"(overlapping clients): scores are higher than on nodes nobody has seen."
            )
        return [*found, *self.notes]

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Write into a run's folder what is needed to know the cut again."""


def per_client_warnings(rows: list[dict[str, Any]]) -> list[str]:
    """What counts per client say that a person should know."""
    found = []
    untrained = [row["client"] for row in rows if row["train"] == 0]
    untested = [row["client"] for row in rows if row["test"] == 0]
    for clients, what in (
        (untrained, "training item: nothing is learned there, only received"),
        (untested, "test item, and {} left out of the means"),
    ):
        if clients:
            who = client_words(clients, {row["client"]: row.get("silo") for row in rows})
            has, are = ("has", "is") if len(clients) == 1 else ("have", "are")
            found.append(f"{who} {has} no {what.format(are)}.")
    return found


def client_words(clients: Sequence[ClientId], names: Mapping[ClientId, str | None] | None = None) -> str:
    """``client 3``, ``clients 'er', 4``: by name where they have one."""
    known = names or {}
    shown = several((f"'{known[client]}'" if known.get(client) else client for client in clients), _MAX)
    return f"client{'' if len(clients) == 1 else 's'} {shown}"


def class_word(label: int, schema: Schema) -> str:
    """What a class is called, in quotes; its number where it has no name."""
    return f"'{schema.class_names[label]}'" if schema.class_names else str(label)


def selection_metric(config: EvaluationConfig, participants: Participants) -> Metric:
    """The validation metric that picks the reported round: the one asked for, if the task has it; else macro-F1 where
    one class is so common that its share would pass for accuracy, and the task's first elsewhere."""
    known = list_selecting(participants.task)
    usual = "macro_f1" if participants.is_lopsided else known[0]
    return METRICS[config.select_by if config.select_by in known else usual]


def needs_ranking(config: EvaluationConfig, participants: Participants) -> bool:
    """Whether clients also return how they rank classes: where it is asked for, or counts alone say little."""
    by = selection_metric(config, participants)
    named = (
        config.positive is not None
        or config.budget is not None
        or config.threshold != "f1"
        or config.threshold_by != "silo"
    )
    return config.auc or named or by.ranking is not None or participants.is_lopsided


def asks_for(config: EvaluationConfig, participants: Participants) -> dict[str, Any]:
    """What ``evaluate`` asks clients for beside counts."""
    asked: dict[str, Any] = {"auc": needs_ranking(config, participants)}
    if config.periods is not None or participants.test_times:
        from graphsilo.experiments.periods import period_bounds

        asked["periods"] = period_bounds(config, participants)
    if participants.rare is None and config.positive is None:
        return asked
    from graphsilo.experiments.decisions import looked_for, share_within

    known = looked_for(config, participants.schema, participants.rare)
    if known and config.threshold_by == "federation" and asked["auc"]:
        rows = participants.cut["per_client"]
        asked["within"] = share_within(known["budget"], [row.get("test", 0) for row in rows])
    return asked | {"rare": known["positive"], "budget": known["budget"], "aim": known["aim"]} if known else asked


class Federations(Protocol):
    """Where the clients of a run live: makes a federation for each seed."""

    def federation(self, setup: ClientSetup, ledger: Ledger | None = None) -> Exchange:
        """All clients, newly made for one seed."""

    def for_reference(self, name: str) -> Federations:
        """The same clients for a reference row, apart from the run that it stands beside."""

    def recover(self, lost: StateLost) -> None:
        """Clients have lost their state, and the seed begins again from its last checkpoint."""


def describe_untrained(lost: Sequence[Sequence[int]], names: Sequence[str] | None) -> str:
    """A warning of such classes, given as [class, items] each."""
    shown = several((f"'{names[label]}'" if names else label for label, _ in lost), _MAX)
    return (
        f"no client trains the {'class' if len(lost) == 1 else 'classes'} {shown}, and "
        f"{sum(items for _, items in lost)} items of {'it' if len(lost) == 1 else 'them'} are asked for at test time: "
        f"they cannot be found."
    )
