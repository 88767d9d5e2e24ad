"""A graph that a model is asked about, made ready as the one that it was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo import documents
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.scaling import FeatureScale, scale_graph
from graphsilo.data.silos.schema import learned_of, schema_of, schema_tree
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.data.sources import catalog
from graphsilo.data.sources.directions import is_symmetric
from graphsilo.data.sources.faults import check_finite
from graphsilo.data.sources.table_spec import SILO_KEYS, TableSpec
from graphsilo.data.sources.vocabulary import first_difference
from graphsilo.data.truth import BooleanWords, Words, join_truth, words_of
from graphsilo.errors import ConfigError, DataError, several

_PREPARATION = ("undirected", "missing", "scale", "degree_features", "max_degree", "sums")
"""Options of the run's data that hold for any graph its models are asked about."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """What a model's own graph went through: other scaling or directions would be another question.

    Attributes:
        schema: What the model was trained for.
        options: Of the run's data, those that hold for any graph.
        scale: By what features were scaled, if they were.
        fills: What an empty cell of each feature was filled with, by the feature's name.
        booleans: Words of 0 and words of 1 of each feature that was a truth value.
        both_ways: Whether links had no directions; None where nodes had times, and edges led from earlier to later
            ones, whatever links are like.
        weighted: Whether links had weights; None where there were no links.
        usual: Where features were not scaled, by what they would have been: tells numbers that are far from these.
    """

    schema: Schema
    options: Mapping[str, Any]
    scale: FeatureScale | None = None
    fills: Mapping[str, float] = field(default_factory=dict)
    booleans: Mapping[str, Words] = field(default_factory=dict)
    both_ways: bool | None = None
    weighted: bool | None = None
    usual: FeatureScale | None = None

    @classmethod
    def of(
        cls, silo: Silo, options: Mapping[str, Any], fills: Mapping[str, float], booleans: Mapping[str, Words]
    ) -> Preparation:
        """Of a silo as its client knows it.

        Args:
            silo: Scaled.
            options: Of the run's data.
            fills, booleans: As they were where the model was trained.
        """
        seen = silo.seen.graph.union
        options = {name: value for name, value in options.items() if name in _PREPARATION}
        both_ways = None if seen.time is not None else is_symmetric(seen)
        weighted = None if not seen.num_edges else seen.edge_weights is not None
        usual = None
        if silo.scale is None or not len(silo.scale.factor):
            from graphsilo.data.silos.column_scales import own_scale

            usual = own_scale(silo, "standard")
        return cls(silo.schema, options, silo.scale, fills, booleans, both_ways, weighted, usual)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], scale: FeatureScale | None) -> Preparation:
        """Of what ``tree`` gave."""
        schema, booleans, usual = schema_of(tree["schema"]), words_of(tree["booleans"]), tree["usual"]
        return cls(
            schema, tree["options"], scale, tree["fills"], booleans, tree["both_ways"], tree["weighted"],
            usual and FeatureScale(np.array(usual[0]), np.array(usual[1])),
        )  # fmt: skip

    def tree(self) -> dict[str, Any]:
        """The same as plain values, but for the scale."""
        return {
            "schema": schema_tree(self.schema), "options": dict(self.options), "fills": dict(self.fills),
            "booleans": dict(self.booleans), "both_ways": self.both_ways, "weighted": self.weighted,
            "usual": self.usual and [self.usual.shift.tolist(), self.usual.factor.tolist()],
        }  # fmt: skip

    def read(
        self, given: str | Path | Graph | GraphCollection, root: str | None = None
    ) -> tuple[Graph | GraphCollection, str]:
        """The graph of a file, or in memory, and what is to be said of it behind a semicolon.

        Args:
            given: A data set by name, a file of one, also a silo's own file; or a graph.
            root: Of the run's data.

        Raises:
            ConfigError, DataError: It cannot be read, or does not fit the model.

        Warns of numbers far from those that the model was trained on.
        """
        options = {} if self.both_ways is None else {"undirected": self.both_ways}
        options |= self.options
        named = isinstance(given, str | Path)
        spec = _find_tables(given) if isinstance(given, str | Path) else None
        if spec is None:
            options.pop("missing", None)
        found: Graph | GraphCollection
        if spec is not None:
            found = catalog.load_spec(spec, options, learned=learned_of(self.schema, self.fills)).graph
        elif named:
            found = catalog.load(str(given), root=root, options=options)
        else:
            assert isinstance(given, Graph | GraphCollection)
            found = catalog.apply_options(given, options)
        remark = self._check_features(found)
        self._check_links(spec, found)
        check_finite(found)
        ready = scale_graph(found, self.scale)
        measured = ready if self.usual is None else scale_graph(found, self.usual, clip=True)
        self._warn_of_far(measured.union, self.usual or self.scale)
        return ready, remark

    def _warn_of_far(self, graph: Graph, scale: FeatureScale | None) -> None:
        """Warns of numbers, scaled already, as of another unit than where the model was trained."""
        if scale is None:
            return
        from graphsilo.data.silos.column_scales import far_columns

        if far := far_columns(graph, scale, self.schema):
            warnings.warn(
                f"the numbers of {several(far, 3)} lie {min(far.values()):.0f} times as far from the mean as those "
                f"that the model was trained on, or further: its scores are a guess there. Are they in the same unit?",
                stacklevel=3,
            )

    def _check_features(self, found: Graph | GraphCollection) -> str:
        schema = self.schema
        if isinstance(found, GraphCollection) != (schema.task == "graph"):
            kind = "a collection of graphs" if schema.task == "graph" else "a single graph"
            raise DataError(
                f"the model was trained for task '{schema.task}' and predicts on {kind}; {found.name} is not."
            )
        names = found.union.feature_names
        if found.num_features != schema.num_features or (
            names and schema.feature_names and names != schema.feature_names
        ):
            place = first_difference("feature", schema.feature_names, "the model", names, found.name)
            raise DataError(
                f"the model was trained on {schema.num_features} features"
                f"{f' ({schema.feature_names[0]}, ...)' if schema.feature_names else ''}; {found.name} has "
                f"{found.num_features}{f' ({names[0]}, ...)' if names else ''}"
                f"{place}. Give the same features in the same order."
            )
        if schema.feature_names and not names:
            raise DataError(
                f"the model knows its {schema.num_features} features by name ({schema.feature_names[0]}, ...), and "
                f"those of {found.name} have no names, so that their order cannot be compared. Give the graph "
                f"feature_names, or describe its tables in a .yaml file."
            )
        trained = BooleanWords("the model", schema.feature_names or (), self.booleans)
        join_truth([trained, BooleanWords(found.name, names or (), found.union.booleans)])
        unknown = names and not schema.feature_names
        return "; the model knows no names of features, so that their order was not compared" if unknown else ""

    def _check_links(self, spec: TableSpec | None, found: Graph | GraphCollection) -> None:
        """Refuse links that are of another kind than those that the model was trained on: its answers would be
        others."""
        links = found.union
        if not links.num_edges or self.weighted is None:
            return
        if (links.edge_weights is not None) != self.weighted:
            here, there = ("no weights", "some") if self.weighted else ("weights", "none")
            raise DataError(
                f"the links of {found.name} have {here}, and those that the model was trained on had {there}. Give "
                f"links of the same kind (edges.weight in a description of tables)."
            )
        if spec is not None and not spec.directed and self.both_ways is False:
            raise DataError(
                f"{spec.file} says that links have no direction, and those that the model was trained on had one. Set "
                f"directed: true."
            )


def _find_tables(name: str | Path) -> TableSpec | None:
    """What a description of tables says, or a silo's own file; None of a data set that is neither.

    Raises:
        ConfigError: It is wrong, or names an exported silo.
    """
    if not catalog.is_description(name):
        return None
    content = documents.read(Path(name).expanduser(), "the data description")
    if not isinstance(content, Mapping) or not any(key in content for key in SILO_KEYS):
        return catalog.find_description(name)
    from graphsilo.data.silos.own import read_silo_file

    silo = read_silo_file(name)
    if silo.tables is None:
        raise ConfigError(
            f"{name} names a stored silo, which was made ready for its own run. Give the description of its tables."
        )
    return replace(silo.tables, missing=silo.missing, sums=silo.sums)


__all__ = ["Preparation"]
