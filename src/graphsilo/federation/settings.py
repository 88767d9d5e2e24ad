"""Settings of a method, typed once at the edge."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from graphsilo.settings import ABOVE_ONE, ABOVE_ZERO, Settings, setting

if TYPE_CHECKING:
    from graphsilo.data.scales import Scaling
    from graphsilo.data.silos.silo import Schema
    from graphsilo.types import Task

__all__ = [
    "ABOVE_ONE",
    "ABOVE_ZERO",
    "LocalTrainingConfig",
    "MethodConfig",
    "OneRoundConfig",
    "OwnLoss",
    "Settings",
    "setting",
]


class MethodConfig(Settings):
    """What every method has."""

    section: ClassVar[str] = "method"
    reaches_all: ClassVar[bool] = False
    """Whether all clients are asked in every round, whoever adds to its sums."""

    tells_apart: ClassVar[tuple[str, ...]] = ("min_count", "weight_by", "weighted", "stragglers")
    """Settings, where a method has them, that decide which silos add to a sum, or how much: sums with one choice and
    with another are equations in what each silo sends, so that secure sums are made with the default alone."""

    rounds: int = setting(100, "communication rounds", source="OpenFGL", ge=1)
    participation: float = setting(
        1.0, "share of clients per round: int(clients * share), at least one, drawn uniformly", source="OpenFGL",
        gt=0, le=1,
    )  # fmt: skip
    min_clients: int | None = setting(
        None, "fewest answers a round goes on with; none means that every client asked must answer", ge=1
    )

    @property
    def total_rounds(self) -> int:
        """Rounds that a run has after set-up; one-shot methods say 1."""
        return self.rounds

    def is_scored(self, number: int) -> bool:
        """Whether models are scored after a round, where nothing else is said: those that clients take."""
        return True

    def count_asked(self, clients: int) -> int:
        """How many of so many clients a round has: int(clients * participation), at least one."""
        return max(1, int(clients * self.participation + 1e-9))

    @property
    def chooses_by_validation(self) -> bool:
        """Whether clients choose something by the score on their own validation nodes, such as when to stop."""
        return False

    def promises(self, seeds: int) -> str:
        """What these settings promise of what a run of so many seeds sends, and what not; empty: nothing.

        It stands among the run's warnings, as a promise is easily taken for a larger one.
        """
        return ""

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        """Says by what these settings come to nothing, or to something else than the method: noise that leaves next to
        nothing of what is sent, a term that is 0 on such data, an optimiser for which an update means nothing; empty:
        they do not, or nobody knows.

        Args:
            schema: What all clients agree on.
            items: Training items of the clients that are asked.
            asked: How many these are.
            model: Name of the common backbone.
        """
        return ""

    @property
    def single_answers(self) -> str:
        """What the server must see of every client by itself, in words; empty where sums are enough, so that they may
        be secure ones."""
        return ""

    @property
    def needs_secure_sums(self) -> str:
        """Why a run with these settings must make secure sums, in words; empty where it need not."""
        return ""

    def check_model(self, model: str, depth: int, task: Task) -> None:
        """Refuse a backbone with which these settings make no sense: called before data is read.

        Args:
            model: Its name.
            depth: Its layers that mix rows along links; 0 where none do.
            task: The run's.

        Raises:
            ConfigError: They do not.
        """

    def check_features(self, scaling: Scaling, estimated: Collection[str]) -> None:
        """Refuse features that are prepared in a way with which these settings could not keep what they promise.

        Args:
            scaling: How they are scaled.
            estimated: As of a graph: what other nodes decide about a node's.

        Raises:
            ConfigError: They are.
        """

    def square_columns(self, schema: Schema) -> int:
        """Columns p of Σ φ φᵀ over a client's training items, for methods that have clients send it; else 0.

        Such a sum over fewer items than columns says what the items' rows span.
        """
        return 0


class OneRoundConfig(MethodConfig):
    """For methods that have exactly one round."""

    reaches_all: ClassVar[bool] = True

    rounds: int = setting(100, "rounds of reference rows; the method itself has exactly one", source="OpenFGL", ge=1)
    participation: float = setting(
        1.0,
        "share of clients that send: int(clients * share), at least one, drawn uniformly; all have what comes of it",
        source="OpenFGL", gt=0, le=1,
    )  # fmt: skip

    @property
    def total_rounds(self) -> int:
        return 1


class OwnLoss:
    """Stands before the settings of local training where a method's loss is its own: these are then none of its."""

    loss: ClassVar[Any] = "auto"
    gamma: ClassVar[Any] = 2.0
    huber_delta: ClassVar[Any] = 1.0
    class_weights: ClassVar[Any] = "none"
    class_beta: ClassVar[Any] = 0.9999


class LocalTrainingConfig(MethodConfig):
    """For methods whose clients run local epochs."""

    local_epochs: int = setting(3, "passes over the local training items per round", source="OpenFGL", ge=1)
    batch_size: int = setting(
        0, "items per step; 0 is the full batch (graph classification: 64 unless set)", source="OpenFGL", ge=0
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "local optimiser", source="OpenFGL")
    lr: float = setting(1e-2, "learning rate", source="OpenFGL", gt=0)
    weight_decay: float = setting(5e-4, "L2 weight decay", source="OpenFGL", ge=0)
    momentum: float = setting(0.0, "momentum of sgd", when={"optimizer": ("sgd",)}, ge=0, lt=1)
    loss: Literal["auto", "focal", "sigmoid_focal", "huber", "absolute"] = setting(
        "auto", "of an item. auto: cross-entropy of classes and labels, the square of numbers; focal: cross-entropy "
        "times (1 − p)^γ, p from one softmax, of several labels from a sigmoid each; sigmoid_focal: p from a sigmoid "
        "for each class against the rest; huber, absolute: of numbers, which count in standard deviations",
        source="Lin et al., ICCV 2017; Huber 1964", when={"task": ("node", "graph", "regression", "multilabel")},
    )  # fmt: skip
    gamma: float = setting(
        2.0, "exponent γ of 1 − p; 0 is cross-entropy", source="Lin et al.",
        when={"loss": ("focal", "sigmoid_focal")}, ge=0,
    )  # fmt: skip
    huber_delta: float = setting(
        1.0, "error, in standard deviations, from which the loss grows like its size and no longer like its square",
        source="ours", when={"loss": ("huber",)}, gt=0,
    )  # fmt: skip
    class_weights: Literal["none", "inverse", "effective"] = setting(
        "none", "factor of an item's class in the loss, by the silo's own training items: 1, one over their number, or "
        "over their effective number", source="Cui et al., CVPR 2019", when={"task": ("node", "graph")},
    )  # fmt: skip
    class_beta: float = setting(
        0.9999, "β of the effective number (1 - β^n) / (1 - β)", source="Cui et al.",
        when={"class_weights": ("effective",)}, gt=0, lt=1,
    )  # fmt: skip
    reset_optimizer: bool = setting(
        False, "forget the optimiser's moments at each download", source="OpenFGL keeps them"
    )
