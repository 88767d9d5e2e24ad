"""How a client's models, their scale and its embeddings are called on disk: beside a run, or at a silo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphsilo.data.scaling import FeatureScale
from graphsilo.federation.message import Tensors
from graphsilo.types import ClientId

SCALE = "scale"
"""Where a file of models has a view: by what features are scaled before the models see them."""


def model_path(folder: Path, seed: int, client: ClientId, when: str) -> Path:
    """Where a client's model stands; ``when`` is best or last."""
    return folder / "models" / f"seed{seed}-client{client}-{when}.safetensors"


def embedding_path(folder: Path, seed: int, client: ClientId) -> Path:
    """Where a client's embeddings stand."""
    return folder / "embeddings" / f"seed{seed}-client{client}.safetensors"


def flat(models: Mapping[str, Tensors] | None) -> dict[str, Tensor]:
    """The tensors of a client's models as ``view/parameter``, as files hold them."""
    return {
        f"{view}/{name}": tensor.detach()
        for view, tensors in (models or {}).items()
        for name, tensor in tensors.items()
    }


def nested(tensors: Tensors) -> dict[str, dict[str, Tensor]]:
    """The models of such tensors: view to parameters."""
    models: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        view, _, parameter = name.partition("/")
        models.setdefault(view, {})[parameter] = tensor
    return models


def kept_tensors(found: Mapping[str, Any], when: str) -> dict[str, Tensor]:
    """What a client's file holds: its models, and the scale that they need.

    Args:
        found: As ``ClientBase.finish`` returns it.
        when: best or last.
    """
    weights = flat(found[when])
    return {**weights, **flat({SCALE: found.get(SCALE, {})})} if weights else {}


def without_scale(models: Mapping[str, Tensors]) -> tuple[dict[str, Tensors], FeatureScale | None]:
    """The models of such a file, and their scale if they have one."""
    others = {view: tensors for view, tensors in models.items() if view != SCALE}
    return others, scale_of(models[SCALE]) if SCALE in models else None


def scale_tensors(scale: FeatureScale) -> dict[str, Tensor]:
    """A scale as models' files and checkpoints hold it."""
    return {"shift": torch.from_numpy(scale.shift), "factor": torch.from_numpy(scale.factor)}


def scale_of(tensors: Tensors) -> FeatureScale:
    """The scale of such tensors."""
    return FeatureScale(tensors["shift"].numpy().copy(), tensors["factor"].numpy().copy())
