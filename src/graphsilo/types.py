"""Names for what travels through the package."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ClientId: TypeAlias = int
NodeIds: TypeAlias = NDArray[np.int64]
"""Global node numbers: rows of the whole graph."""
NodeIndex: TypeAlias = NDArray[np.int64]
"""Local node numbers: rows of one client's graph."""
Mask: TypeAlias = NDArray[np.bool_]

Task: TypeAlias = Literal["node", "graph", "link", "regression", "multilabel"]
TARGET_TASKS: tuple[Task, ...] = ("regression", "multilabel")
"""About nodes, as ``node`` is, of which targets are predicted and no class: numbers, or labels that a node may have
several of."""
CLASS_TASKS: tuple[Task, ...] = ("node", "graph")
"""Those whose items have one class each."""
NODE_TASKS: tuple[Task, ...] = ("node", *TARGET_TASKS)
"""Those whose items are nodes."""
Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Of a backbone's dense matrix products; everything else is float32."""

Compressing: TypeAlias = Literal["none", "int8", "topk"]
"""How clients send the models that they made of one that they were sent."""

Averaging: TypeAlias = Literal["none", "trimmed_mean", "median", "krum", "clip"]
"""What makes one model of the clients': their weighted mean, or a rule that some liars cannot move at will."""
COUNTING: tuple[Averaging, ...] = ("trimmed_mean", "krum")
"""Rules that take the number of clients that may lie."""
