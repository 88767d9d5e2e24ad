"""Small tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphsilo.data.sources.tables import Reading, read_spec, read_tables
from graphsilo.data.sources.vocabulary import Learned

ROWS = """id,age,crp,ward,smoker,seen,y,part
a,40,1,icu,yes,2024-01-01,home,train
b,,2,er,no,2024-01-03,home,train
c,60,NA,,Yes,,stays,train
d,80,6,er,,2024-02-01,stays,val
e,1000,9,er,no,2024-01-02,home,test
"""


def read(
    folder: Path,
    nodes: str = "features: [age]",
    *,
    table: str = ROWS,
    links: str = "a,b\na,b\nb,c\n",
    top: str = "",
    learned: Learned | None = None,
) -> Reading:
    """A table of five patients, described by what stands under ``nodes`` and beside it."""
    (folder / "n.csv").write_text(table)
    (folder / "e.csv").write_text(links)
    (folder / "t.yaml").write_text(
        f"nodes: {{path: n.csv, id: id, label: y, split: part, {nodes}}}\n"
        f"edges: {{path: e.csv, source: a, target: b}}\n{top}\n"
    )
    return read_tables(read_spec(folder / "t.yaml"), learned=learned)


def column(found: Reading, name: str) -> list[float]:
    assert found.graph.feature_names is not None
    return np.asarray(found.graph.features)[:, found.graph.feature_names.index(name)].tolist()
