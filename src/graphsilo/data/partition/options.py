"""What all cuts have in common of their settings."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from graphsilo.settings import Settings, setting

LARGEST_SEED = 2**32 - 1
"""Of cuts and splits: what NumPy's, scikit-learn's and Metis' generators take alike."""

Seed: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
SplitMode: TypeAlias = Literal["stratified", "global", "predefined"]


class PartitionOptions(Settings):
    """Base of the settings of a rule."""

    section: ClassVar[str] = "partition"


class CutOptions(PartitionOptions):
    """What every cut is given beside the settings of its rule."""

    clients: int = setting(10, "number of clients", ge=1)
    seed: Seed = setting(2024, "seed of the cut and its splits; apart from the seeds of training", source="OpenFGL")
    split: SplitMode | None = setting(None, "how each client's items are divided; none: the rule's way")
    split_index: int = setting(0, "which of several predefined splits", ge=0)
