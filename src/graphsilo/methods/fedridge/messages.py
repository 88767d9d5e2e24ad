"""What FedRidge's clients and server send each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.candidates import CandidatesRequest
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.methods.fedridge.check import find_fault, find_target_fault, is_semidefinite
from graphsilo.methods.fedridge.columns import LARGEST


class CountRequest(Message):
    """Ask how much there is to learn from."""


class Counts(Message):
    """One client's training items by class, and the size of its graphs.

    Attributes:
        classes: [C] training items that its sums will count.
        sizes: [2] nodes and items of the training graph (of all graphs of a collection).
    """

    classes: Tensor = sends(
        "counts", dtype=torch.int64, shape=("classes",), per_class="min_count", only_with={"epsilon": None}
    )
    sizes: Tensor = sends("counts", dtype=torch.int64, shape=(2,), per_class=False)

    def check(self) -> None:
        least, items = int(min(self.classes.min(), self.sizes.min())), int(self.sizes[1])
        if least < 0 or int(self.classes.sum()) > items:
            raise MessageError(
                f"Counts counts {int(self.classes.sum())} training items among {items}, and {least} of something: "
                f"that cannot be."
            )


class TargetCounts(Counts):
    """The same of targets.

    Attributes:
        squares: [C] Σ y² over these items.
    """

    squares: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("classes",), per_class="min_count", only_with={"epsilon": None},
        compared=False,
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        if bool((self.squares < 0).any()):
            raise MessageError("TargetCounts has a sum of squares below 0.")


class ColumnsRequest(Message):
    """Ask how the columns of tables lie."""


class ColumnSums(Message):
    """Sums over one client's training nodes, of logarithms of these columns.

    Attributes:
        sums, squares: [p] Σ x and Σ x².
        num_samples: Training nodes.
    """

    sums: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("columns",), per_class=False, only_with={"epsilon": None}
    )
    squares: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("columns",), per_class=False, only_with={"epsilon": None}
    )
    num_samples: int = sends("counts")

    def check(self) -> None:
        count = self.num_samples
        slack = 1e-6 * count
        if count < 0 or bool((self.squares > (LARGEST**2 + 1e-6) * count).any()) or bool(
            (self.sums**2 > (self.squares * (1 + 1e-6) + slack) * count).any()
        ):  # fmt: skip
            raise MessageError(f"ColumnSums has sums that no {count} nodes can have.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        if self.num_samples > items:
            raise MessageError(f"ColumnSums counts {self.num_samples} nodes; there are {items:g} at most.")


class ScaleRequest(Message):
    """What the columns of tables are measured in.

    Attributes:
        scale: [2, p] the mean of each, and what is left of it is multiplied by.
    """

    scale: Tensor = sends("statistic", dtype=torch.float64, shape=(2, "columns"))


class StatisticsRequest(Message):
    """Ask for the sums.

    Attributes:
        kinds, dim: Which features, and most of their columns.
        class_weights: [balances, C] w.
        size: Nodes of a usual graph.
        blocks: Columns that belong together, by features: how many, and their largest squared length in a row.
        constants: Which column is constant, by features.
    """

    kinds: list[str] = sends("control")
    dim: int = sends("control")
    class_weights: Tensor = sends("counts", dtype=torch.float64, shape=("balances", "classes"))
    size: float = sends("counts")
    blocks: dict[str, list[list[float]]] = sends("control")
    constants: dict[str, int] = sends("control")


class TargetStatisticsRequest(StatisticsRequest):
    """The same of targets.

    Attributes:
        squares: [C] Σ y² over the items of all clients.
    """

    squares: Tensor = sends("statistic", dtype=torch.float64, shape=("classes",), per_class=False)


class Statistics(Message):
    """Σ w φ φᵀ, its upper triangle, and Σ w y φᵀ [C, p] over one client's training items, by features and balance.

    Attributes:
        moments, products: In float32.
        moments_rest, products_rest: What rounding took off, where sums cross in float64; else nothing.
        num_samples: Training items that are in the sums.
    """

    moments: Tensors = sends("statistic", per_class=False, only_with={"epsilon": None})
    products: Tensors = sends("statistic", per_class="min_count", only_with={"epsilon": None})
    moments_rest: Tensors = sends("statistic", per_class=False, only_with={"epsilon": None}, compared=False)
    products_rest: Tensors = sends("statistic", per_class="min_count", only_with={"epsilon": None}, compared=False)
    num_samples: int = sends("counts")

    def check_answer(self, request: Message) -> None:
        """Sums that rows of such features and such class weights can have."""
        self._check_rows(request, 1)

    def check_total(self, request: Message, clients: int) -> None:
        """Likewise, of the rows of all clients; and no sum of φφᵀ is negative in any direction."""
        self._check_rows(request, clients)
        for name, moments in whole(self.moments, self.moments_rest).items():
            if not is_semidefinite(moments, len(self.products[name][0])):
                raise MessageError(f"Statistics.moments of {name} are no sum of squares: they are negative somewhere")

    def _check_rows(self, request: Message, clients: int) -> None:
        assert isinstance(request, StatisticsRequest)
        names = [f"{kind}/{place}" for kind in request.kinds for place in range(len(request.class_weights))]
        for field in ("moments", "products", "moments_rest", "products_rest"):
            found = getattr(self, field)
            if found.keys() != set(names) and (found or not field.endswith("_rest")):
                raise MessageError(f"Statistics.{field} holds {len(found)} sums; {', '.join(names)} were asked for.")
        moments, products = whole(self.moments, self.moments_rest), whole(self.products, self.products_rest)
        for kind in request.kinds:
            blocks = [(int(columns), bound) for columns, bound in request.blocks[kind]]
            for place, weights in enumerate(request.class_weights):
                name = f"{kind}/{place}"
                find = find_fault
                if isinstance(request, TargetStatisticsRequest):
                    find = partial(find_target_fault, squares=request.squares)
                trouble = find(
                    moments[name], products[name], self.num_samples, blocks=blocks, constant=request.constants[kind],
                    weights=weights, clients=clients,
                )  # fmt: skip
                if trouble:
                    raise MessageError(f"Statistics of {name} are sums of no rows: {trouble}.")


class ScoreRequest(CandidatesRequest):
    """Ask how good candidates are.

    Attributes:
        candidates: [candidates, p, C] by features.
        shifts: [shifts, C] what is added to the scores: each is tried with each candidate.
        dim: Most of the features' columns.
        size: Nodes of a usual graph.
    """

    candidates: Tensors = sends("model")
    shifts: Tensor = sends("counts", dtype=torch.float64, shape=("shifts", "classes"))
    dim: int = sends("control")
    size: float = sends("counts")

    def count_models(self) -> tuple[int, ...]:
        return (sum(map(len, self.candidates.values())) * len(self.shifts),)

    def count_classes(self) -> int:
        return self.shifts.shape[1]


class AdoptRequest(Message):
    """The common model; where it has label features, a second one without them for graphs that are not the silo's own.

    Attributes:
        weights: By features.
        shifts: [models, C] what is added to their scores, in this order.
        class_weights: [models, C] those that they were made with.
        size: Nodes of a usual graph.
    """

    weights: Tensors = sends("model")
    shifts: Tensor = sends("counts", dtype=torch.float64, shape=("models", "classes"))
    class_weights: Tensor = sends("counts", dtype=torch.float64, shape=("models", "classes"))
    size: float = sends("counts")


def halves(sums: Mapping[str, Tensor], *, precise: bool) -> tuple[Tensors, Tensors]:
    """Sums as they cross: in float32, and what that takes off of float64; else nothing."""
    single = {name: value.float() for name, value in sums.items()}
    return single, {name: (value - single[name]).float() for name, value in sums.items()} if precise else {}


def whole(single: Tensors, rest: Tensors) -> dict[str, Tensor]:
    """The sums of both halves."""
    return {name: value + rest[name] if rest else value for name, value in single.items()}
