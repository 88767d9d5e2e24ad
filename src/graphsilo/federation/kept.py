"""How a client's models and embeddings are called on disk, wherever they are kept: beside a run, or at a silo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from graphsilo.federation.message import Tensors
from graphsilo.types import ClientId


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
