"""The dates of tables, and which of them deserve a look."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.dates import far_dates, later_than
from graphsilo.data.graph import Graph
from graphsilo.data.sources.columns import DAYS_PER_YEAR
from graphsilo.data.sources.table_spec import TableSpec


def date_notes(graph: Graph, spec: TableSpec) -> Iterator[str]:
    """A sentence for each table with times that are not yet, or with dates far outside those of nearly all rows."""
    steps = {name or "nodes" for name, said in spec.tables() if said.time is not None and said.time.steps}
    today = float(np.datetime64("today", "D").astype(np.int64))
    times = dates_of(graph)
    for name, days in (times | date_columns_of(graph, spec)).items():
        said = [*far_dates(days)]
        if name in times and name not in steps and not any("long after" in text for text in said):
            said += later_than(days, today)
        yield from (f"'{name}': {text}" for text in said)


def dates_of(graph: Graph) -> dict[str, NDArray[np.float64]]:
    """Days since 1970-01-01 of the rows of each table that has some, by the table's name."""
    found = {}
    if graph.time is not None:
        kinds = ("nodes",) if graph.types is None else graph.types.names
        of_node = np.zeros(graph.num_nodes, dtype=np.int16) if graph.types is None else graph.types.of_node
        found = {kind: graph.time[of_node == number] for number, kind in enumerate(kinds)}
    if graph.links is not None and graph.links.time is not None:
        links = graph.links.time
        found |= {name: links[graph.links.of_link == number] for number, name in enumerate(graph.links.relations)}
    known = {name: days[~np.isnan(days)] for name, days in found.items()}
    return {name: days for name, days in known.items() if len(days)}


def date_columns_of(graph: Graph, spec: TableSpec) -> dict[str, NDArray[np.float64]]:
    """Days since 1970-01-01 of the columns of dates that became features, by the feature's name, those of filled cells
    included."""
    found: dict[str, NDArray[np.float64]] = {}
    places = {name: (graph.features, place) for place, name in enumerate(graph.feature_names or ())}
    if graph.links is not None:
        places |= {name: (graph.links.features, place) for place, name in enumerate(graph.links.feature_names)}
    for table, said in spec.tables():
        for column, how in said.dates.items():
            wanted = how.feature(column)
            name = next((one for one in (wanted, f"{table}.{wanted}") if one in places), None)
            if name is None:
                continue
            features, place = places[name]
            values = features[:, place] if isinstance(features, np.ndarray) else features[:, [place]].toarray().ravel()
            if graph.types is not None and features is graph.features:
                values = values[graph.types.of_node == graph.types.of_feature[place]]
            base = float(np.datetime64(how.years_at or how.days_since, "D").astype(np.int64))
            found[name] = base + np.rint(values.astype(np.float64) * (-DAYS_PER_YEAR if how.years_at else 1.0))
    return {name: days for name, days in found.items() if len(days)}
