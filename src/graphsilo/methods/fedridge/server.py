"""FedRidge's server: adds up, solves, and lets the silos choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphsilo.errors import FederationError, UnsupportedError
from graphsilo.evaluate.choice import rate_candidates
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.interface import Federation, Handler
from graphsilo.federation.message import Tensors
from graphsilo.federation.release import ReleaseRequest, count_sharers, read_sum
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fedridge import private
from graphsilo.methods.fedridge.client import Client, shift_scores
from graphsilo.methods.fedridge.columns import CLIP, RELATED, find_scale
from graphsilo.methods.fedridge.config import FedRidgeConfig, kind_of, plain_of
from graphsilo.methods.fedridge.features import KINDS, Recipe
from graphsilo.methods.fedridge.labels import LABELLED
from graphsilo.methods.fedridge.messages import (
    AdoptRequest,
    ColumnsRequest,
    CountRequest,
    ScaleRequest,
    ScoreRequest,
    Statistics,
    StatisticsRequest,
    TargetCounts,
    TargetStatisticsRequest,
    whole,
)
from graphsilo.methods.fedridge.private import SENSITIVITY
from graphsilo.methods.fedridge.solve import ridges, unpack
from graphsilo.models.columns import SCALE
from graphsilo.types import TARGET_TASKS, ClientId

WIDE = ("wl", "columns")
"""Features of which few columns tell nothing."""
USUAL_RIDGE = 1.0
"""The penalty next to this is taken where there are several, and nobody has a validation node."""


class Chosen(NamedTuple):
    """A candidate: features, place of the balance in the list, [p, C] weights, [C] the shift of its scores."""

    kind: str
    place: int
    weights: Tensor
    shift: Tensor


class Server(ServerBase[FedRidgeConfig]):
    """Adds up, solves, and lets the silos choose.

    Attributes:
        kinds: The features that are still to choose from.
        moments, products: The sums of all silos so far, by features and balance, float64.
        sigma: The deviation of the noise on each number of the sums.
        scale: [2, p] of the columns of tables, where these are tried.
        weights: The common model by its features, and where it has label features a second one without; empty before
            round 1.
    """

    kept = ("moments", "products", "class_weights", "shifts", "weights", "kinds", "size", "sigma", "scale")

    def __init__(self, context: ServerContext[FedRidgeConfig]):
        super().__init__(context)
        self.has_targets = self.schema.task in TARGET_TASKS
        if self.config.epsilon is not None and self.schema.task != "node":
            raise UnsupportedError(
                f"method.epsilon promises privacy of nodes, and this task is about "
                f"{'targets' if self.has_targets else 'graphs'}, whose sums of nodes have no bound; leave it out, or "
                f"choose a task of one class per node."
            )
        self.balances = (0.0,) if self.has_targets else self.config.balance
        self.priors = (0.0,) if self.has_targets else self.config.prior
        self.sigma = 0.0
        self.kinds = self.config.kinds(self.schema) if self.config.epsilon is None else (self.config.released,)
        self.nodes = self.size = 1.0
        self.moments: dict[str, Tensor] = {}
        self.products: dict[str, Tensor] = {}
        self.class_weights = torch.ones(len(self.balances), self.schema.num_classes, dtype=torch.float64)
        self.shifts = torch.zeros(len(self.priors), self.schema.num_classes, dtype=torch.float64)
        self.squares: Tensor | None = None
        self.scale = torch.zeros(2, 0, dtype=torch.float64)
        self.weights: dict[str, Tensor] = {}

    def expected_bytes(self) -> tuple[int, int]:
        config, classes = self.config, self.schema.num_classes
        up = down = 0
        if config.epsilon is not None:
            width = self._width(self.kinds[0], config.dim)
            return 8 * private.size(width, classes) * self.asked, 4 * width * classes * self.asked
        widths = {kind: self._width(kind, config.dim) for kind in config.kinds(self.schema)}
        asked = _widest(tuple(widths))
        each = 8 if config.precise(widths[kind] for kind in asked) else 4
        for kind, width in widths.items():
            if kind in asked:
                up += each * len(self.balances) * (width * (width + 1) // 2 + width * classes)
            down += 4 * width * classes * len(self.balances) * len(config.ridge)
            up += 8 * classes**2 * len(self.balances) * len(config.ridge) * len(self.priors)
        return up * self.asked, down * self.asked

    def _width(self, kind: str, dim: int) -> int:
        return self.config.width(kind, dim, self.schema)

    def _recipe(self, kind: str, dim: int) -> Recipe:
        return self.config.recipe(kind, 0, dim, self.schema)

    def set_up(self, federation: Federation) -> None:
        """Counts, then the sums; of several features those that a narrow version of each says are best."""
        config, asked = self.config, self.select(federation, 1)
        if config.epsilon is not None:
            self._take_release(federation, asked)
            return
        step: Any = Client.count_targets if self.has_targets else Client.count
        counts = federation.sum(step, CountRequest(), to=asked).require(config.min_clients)
        total = counts.classes.double()
        present = total > 0
        even = total.sum() / (present.sum().clamp_min(1) * total.clamp_min(1))
        if not self.has_targets:
            self.class_weights = torch.stack([torch.where(present, even**each, 0.0) for each in config.balance])
            rarity = torch.where(present, -(total.clamp_min(1) / total.sum().clamp_min(1)).log(), 0.0)
            self.shifts = torch.tensor(config.prior, dtype=torch.float64)[:, None] * rarity
        self.squares = counts.squares if isinstance(counts, TargetCounts) else None
        if not present.any() and config.min_count > 1:
            raise FederationError(
                f"no silo has a training item that counts: every class has fewer than method.min_count="
                f"{config.min_count} of them at every silo. Lower it."
            )
        self.log["training_items"] = float(total.sum())
        self.nodes, self.size = float(counts.sizes[0]), float(counts.sizes[0]) / max(float(counts.sizes[1]), 1.0)
        kinds = self.kinds
        # Label features seem better than they are beside few columns, and few of some features tell nothing: these are
        # judged in full width.
        narrow = tuple(name for name in kinds if name in ("mean", "separate"))
        if len(narrow) > 1 and 0 < config.pilot < max(
            self._width(kind, config.dim) for kind in kinds if kind_of(kind) not in WIDE
        ):
            self.kinds = narrow
            self._add_up(federation, asked, config.pilot)
            better = kind_of(self._choose(federation, asked, config.pilot)[0].kind)
            self.kinds = tuple(name for name in kinds if kind_of(name) in (better, *WIDE))
        if "columns" in self.kinds:
            sums = federation.sum(Client.add_columns, ColumnsRequest(), to=asked).require(config.min_clients)
            self.scale = find_scale(sums.sums, sums.squares, int(sums.num_samples))
            self._share_scale(federation)
        self._add_up(federation, asked, config.dim)

    def _share_scale(self, federation: Federation) -> None:
        if "columns" in self.kinds:
            federation.sum(Client.scale_columns, ScaleRequest(scale=self.scale)).require(self.config.min_clients)

    def _add_up(self, federation: Federation, asked: tuple[ClientId, ...], dim: int) -> None:
        kinds, features, graphs = _widest(self.kinds), self.schema.num_features, self.schema.task == "graph"
        recipes = {kind: self._recipe(kind, dim) for kind in kinds}
        # A graph has all nodes there are at most.
        sums = (self.nodes / self.size) ** 2 if graphs else None
        behind = {kind: float(self.config.width_behind(kind, dim, self.schema)) for kind in kinds}
        request = StatisticsRequest(
            kinds=kinds,
            dim=dim,
            class_weights=self.class_weights,
            size=self.size,
            blocks={
                kind: [
                    *recipe.blocks(features, sums),
                    *([[behind[kind], CLIP**2 if kind.endswith(RELATED) else 2 * SCALE**2]] if behind[kind] else []),
                ]
                for kind, recipe in recipes.items()
            },
            constants={kind: recipe.constant(features, graphs=graphs) for kind, recipe in recipes.items()},
        )
        step: Handler[Any, Statistics] = Client.statistics
        if self.squares is not None:
            request = TargetStatisticsRequest(**vars(request), squares=self.squares)
            step = Client.target_statistics
        found = federation.sum(step, request, to=asked).require(self.config.min_clients)
        self.moments = whole(found.moments, found.moments_rest)
        self.products = whole(found.products, found.products_rest)

    def _take_release(self, federation: Federation, asked: tuple[ClientId, ...]) -> None:
        config, (kind,) = self.config, self.kinds
        classes, width = self.schema.num_classes, self._width(kind, config.dim)
        sharers = count_sharers(config, len(asked))
        request = ReleaseRequest(size=private.size(width, classes), honest=sharers)
        total = federation.sum(Client.noisy_statistics, request, to=asked).require(config.min_clients)
        found = read_sum(total, config, SENSITIVITY, sharers)
        moments, products = private.parts(found.numbers, classes, width)
        self.moments, self.products = {f"{kind}/0": moments}, {f"{kind}/0": products}
        self.sigma = self.log["noise"] = found.sigma

    def round(self, federation: Federation, number: int) -> None:
        """All candidates from the sums, one exchange to choose, one to hand out."""
        config, asked = self.config, self.select(federation, number)
        if config.epsilon is None:
            self._share_scale(federation)  # some may have missed it
            chosen = self._choose(federation, asked, config.dim)
        else:
            (kind,) = self.kinds
            sums = self.moments[f"{kind}/0"], self.products[f"{kind}/0"]
            weights, self.log["penalty"] = private.solution(*sums, self.sigma)
            chosen = [Chosen(kind, 0, weights.float(), torch.zeros(self.schema.num_classes, dtype=torch.float64))]
        message = AdoptRequest(
            weights={each.kind: each.weights for each in chosen},
            shifts=torch.stack([each.shift for each in chosen]),
            class_weights=torch.stack([self.class_weights[each.place] for each in chosen]),
            size=self.size,
        )
        # With ``participation``, silos that added nothing have the model, too: there is no other round.
        federation.sum(Client.adopt, message).require(config.min_clients)
        graphs = self.schema.task == "graph"
        self.weights = {}
        for each in chosen:
            constant = self._recipe(each.kind, config.dim).constant(self.schema.num_features, graphs=graphs)
            self.weights[each.kind] = shift_scores(each.weights, each.shift, constant)

    def _choose(self, federation: Federation, asked: tuple[ClientId, ...], dim: int) -> list[Chosen]:
        """The candidate that summed validation counts prefer; behind one with label features the best without."""
        config = self.config
        solved = self.solutions()
        names = [
            (kind, place, at, strength)
            for kind, each in solved.items()
            for place in each
            for at in range(len(config.ridge))
            for strength in range(len(self.priors))
        ]
        plain = [number for number, name in enumerate(names) if not name[0].endswith(LABELLED)]
        labelled = [number for number, name in enumerate(names) if name[0].endswith(LABELLED)]
        known = labelled if labelled and config.label_features == "always" else [*plain, *labelled]
        # With nobody's validation nodes the usual penalty is best.
        scores = [-abs(float(np.log(config.ridge[at] / USUAL_RIDGE))) for _, _, at, _ in names]
        if max(len(plain), len(known)) > 1:
            candidates: dict[str, Tensor] = {
                kind: torch.stack([weights.float() for found in each.values() for weights in found])
                for kind, each in solved.items()
            }
            request = ScoreRequest(candidates=candidates, shifts=self.shifts, dim=dim, size=self.size)
            found = federation.sum(Client.score, request, to=asked).require(config.min_clients)
            metric = find_selecting(self.context.select_by, self.schema.task)
            if values := rate_candidates(metric, found.counts.numpy(), found.ranked):
                scores = values
                self.log["validation"] = metric.goodness(max(scores[number] for number in known))
        best = max(known, key=scores.__getitem__)  # the first of equals
        kind, place, at, strength = names[best]
        self.log.update(
            ridge=config.ridge[at], balance=self.balances[place], prior=self.priors[strength],
            features=float(KINDS.index(kind_of(kind))), labels=float(kind.endswith(LABELLED)),
        )  # fmt: skip
        chosen = [best] if best in plain else [best, max(plain, key=scores.__getitem__)]
        return [
            Chosen(kind, place, solved[kind][place][at].float(), self.shifts[strength])
            for kind, place, at, strength in (names[each] for each in chosen)
        ]

    def solutions(self) -> dict[str, dict[int, list[Tensor]]]:
        """The ridge of every penalty, [p, C] float64, by features and place of the balance."""
        # What float32 leaves in directions that no row has must not be taken for rows.
        precise = self.config.precise(len(self.products[f"{kind}/0"][0]) for kind in _widest(self.kinds))
        noise = 10 * torch.finfo(torch.float64 if precise else torch.float32).eps
        found: dict[str, dict[int, list[Tensor]]] = {kind: {} for kind in self.kinds}
        for asked in _widest(self.kinds):
            for place in range(len(self.balances)):
                right = self.products[f"{asked}/{place}"].double().t()
                square = unpack(self.moments[f"{asked}/{place}"], len(right))
                for kind in {asked, plain_of(asked)} & found.keys():
                    # Sums with label features, or relations, hold those without, which come first.
                    behind = self.config.width_behind(asked, self.config.dim, self.schema)
                    width = len(right) - (0 if kind == asked else behind)
                    part = square[:width, :width].contiguous()
                    found[kind][place] = ridges(part, right[:width], self.config.ridge, noise)
        return found

    def aggregate(self) -> Tensors | None:
        return self.weights


def _widest(kinds: Sequence[str]) -> list[str]:
    """Those whose sums hold the sums of the others."""
    return [name for name in kinds if not {name + LABELLED, name + RELATED} & set(kinds)]
