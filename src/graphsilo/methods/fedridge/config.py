"""Settings of FedRidge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.release import PrivateConfig
from graphsilo.federation.settings import ABOVE_ZERO, OneRoundConfig, setting
from graphsilo.methods.fedridge import columns, private
from graphsilo.methods.fedridge.columns import CLIP, RELATED
from graphsilo.methods.fedridge.features import HOPS, KINDS, Kind, Recipe
from graphsilo.methods.fedridge.labels import LABELLED
from graphsilo.methods.fedridge.private import NOISY
from graphsilo.settings import WIDEST, NotNegative, Positive, Share

FEW_COLUMNS = 256
"""Sums of up to so many columns cross in float64, unless set otherwise."""


class FedRidgeConfig(OneRoundConfig, PrivateConfig):
    """Settings of FedRidge."""

    fewer: ClassVar[str] = "a smaller method.private_dim"

    features: Literal["auto", "mean", "sgc", "separate", "wl", "columns"] = setting(
        "auto", "φ of a node: the mean of X, ÂX, …, Â^h X; Â^h X; or X, NX, …, N^h X side by side, for graphs whose "
        "neighbours differ; of a graph also wl: counts of its neighbourhoods of up to h hops that look alike; of nodes "
        "of tables also columns: FedTrees', on one scale; auto: mean, separate, wl or, where tables of links are known "
        "apart, columns, as validation says",
        source="ours; sgc: Wu et al. 2019; side by side: H2GCN, Zhu et al. 2020; wl: Shervashidze et al. 2011",
    )  # fmt: skip
    label_features: Literal["auto", "always", "never"] = setting(
        "auto", "½ [N Y ‖ (N² − diag N²) Y] appended to φ, of the classes Y of the silo's own training nodes; auto: as "
        "validation says",
        source="ours; labels as features: UniMP, Shi et al. 2021", when={"task": ("node",), "epsilon": (None,)},
    )  # fmt: skip
    pilot: int = setting(
        128, "auto: columns on which the features are compared before the sums of the better ones; 0: in full width",
        source="ours", ge=0, le=WIDEST, when={"features": ("auto",), "epsilon": (None,)},
    )  # fmt: skip
    hops: int | None = setting(None, "h; none: 3 for mean and wl, 2 for sgc and separate", source="ours", ge=0, le=10)
    dim: int = setting(
        2048, "most columns of φ: what is wider is projected at random; 0 for no bound",
        source="ours; the projection: Kane and Nelson 2014", ge=0, le=WIDEST,
    )  # fmt: skip
    random_features: int = setting(0, "random ReLU features of φ, appended", source="ours", ge=0, le=WIDEST)
    balance: tuple[Share, ...] = setting(
        (0.0,), "class weights (n / (C · n_c))^balance that are tried: 0 counts nodes alike, 1 classes", source="ours",
        min_length=1, when={"task": ("node", "graph"), "epsilon": (None,)},
    )  # fmt: skip
    ridge: tuple[Positive, ...] = setting(
        (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0), "penalties λ that are tried", source="ours", min_length=1
    )
    prior: tuple[NotNegative, ...] = setting(
        (0.0, 0.02, 0.05, 0.1, 0.2), "strengths t that are tried of adding −t log(n_c / n) to the score of class c",
        source="ours; logit adjustment, Menon et al. 2021", min_length=1,
        when={"task": ("node", "graph"), "epsilon": (None,)},
    )  # fmt: skip
    own: bool = setting(
        True, "whether silos correct the common model towards their own rows, or take these alone", source="ours"
    )
    own_ridge: tuple[Positive, ...] = setting(
        (0.5, 2.0, 8.0), "penalties μ of that correction; a silo also tries none, and its own sums alone with each λ",
        source="ours", min_length=1, when={"own": (True,)},
    )  # fmt: skip
    wire: Literal["auto", "float32", "float64"] = setting(
        "auto", "precision of the sums that silos send; auto: float64 for 256 columns or fewer, where it costs next to "
        "nothing; they are added up in float64 in any case", source="ours", when={"epsilon": (None,)},
    )  # fmt: skip
    min_count: int = setting(
        1, "a class with fewer training nodes at a silo, or a label that fewer of them have, is left out of its sums",
        source="ours", ge=1,
        when={"epsilon": (None,)},
    )  # fmt: skip

    private_dim: int = setting(
        1024, "most columns of φ in sums with noise, which grows with them", source="ours", ge=1, le=WIDEST,
        when={"epsilon": ABOVE_ZERO},
    )  # fmt: skip

    @property
    def released(self) -> str:
        """The name of the features whose sums leave with noise."""
        return ("sgc" if self.features == "sgc" else "mean") + NOISY

    @property
    def chooses_by_validation(self) -> bool:
        """All silos together choose the model by it, and each its correction."""
        return True

    def kinds(self, schema: Schema) -> tuple[str, ...]:
        """The features that are tried; a name ends with ``LABELLED`` where label features come with them, with
        ``RELATED`` where columns of relations do.

        Raises:
            UnsupportedError: The features that are asked for are not for this task, or leave no column.
        """
        task = schema.task
        if self.features == "wl" and task != "graph":
            raise UnsupportedError("method.features=wl counts neighbourhoods of whole graphs; take mean or separate.")
        related = ("columns", "columns" + RELATED) if schema.relations else ("columns",)
        fit = task != "graph" and self.epsilon is None and columns.features_taken(schema, self.dim) > 0
        if self.features == "columns":
            if fit:
                return related
            raise UnsupportedError(
                f"method.features=columns is for nodes, needs sums without noise (method.epsilon) and, here, a "
                f"method.dim of some {sum(columns.widths(schema, 0))}; got a task of {task}s, method.epsilon="
                f"{self.epsilon} and method.dim={self.dim}. Take mean or separate."
            )
        some = ("mean", "separate", "wl") if task == "graph" else ("mean", "separate")
        plain: tuple[str, ...] = some if self.features == "auto" else (self.features,)
        labelled = self.label_features != "never" and task == "node"
        return (
            *plain,
            *(name + LABELLED for name in plain if labelled),
            *(related if self.features == "auto" and schema.relations and fit else ()),
        )

    def recipe(self, name: str, seed: int, dim: int, schema: Schema) -> Recipe:
        """How the features of this name are made, of so many columns; those with noise have theirs."""
        kind = kind_of(name)
        hops = HOPS[kind] if self.hops is None else self.hops
        if kind == "columns":
            return Recipe(kind, hops, dim, self.random_features, seed, False, columns.widths(schema, dim)[0], CLIP**2)
        if name.endswith(NOISY):
            return Recipe(kind, hops, self.private_dim, 0, seed, centred=True)
        return Recipe(kind, hops, dim, self.random_features, seed)

    def width(self, name: str, dim: int, schema: Schema) -> int:
        """p, the columns of these features."""
        plain = self.recipe(name, 0, dim, schema).width(schema.num_features, graphs=schema.task == "graph")
        return plain + self.width_behind(name, dim, schema)

    def width_behind(self, name: str, dim: int, schema: Schema) -> int:
        """How many of them stand behind the constant and the random ones: label features, or those of relations."""
        if name.endswith(RELATED):
            return columns.widths(schema, dim)[1]
        return 2 * schema.num_classes * name.endswith(LABELLED)

    def numbers(self, schema: Schema) -> int:
        return private.size(self.width(self.released, self.dim, schema), schema.num_classes)

    def precise(self, widths: Iterable[int]) -> bool:
        """Whether sums of so many columns cross in float64."""
        return self.wire == "float64" or (self.wire == "auto" and max(widths) <= FEW_COLUMNS)

    @property
    def dims(self) -> tuple[int, ...]:
        """Widths that are asked for."""
        return (self.dim, self.pilot) if self.features == "auto" else (self.dim,)

    def square_columns(self, schema: Schema) -> int:
        if self.epsilon is not None:
            return 0
        return max(self.width(kind, dim, schema) for kind in self.kinds(schema) for dim in self.dims)


def plain_of(name: str) -> str:
    """The name of the same features without those behind the constant."""
    return name.removesuffix(LABELLED).removesuffix(RELATED)


def kind_of(name: str) -> Kind:
    """The kind of the features of this name.

    Raises:
        MessageError: There are none.
    """
    plain = plain_of(name).removesuffix(NOISY)
    if plain not in KINDS:
        raise MessageError(f"'{name[:40]}' is no kind of features; known are {', '.join(KINDS)}.")
    return plain
