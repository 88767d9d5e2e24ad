"""How a client's models, what they need of features, and its embeddings are called on disk: at a run, or at a silo."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.truth import Words, words_of
from graphsilo.errors import MessageError
from graphsilo.federation.client import COMMON
from graphsilo.federation.message import Tensors
from graphsilo.types import ClientId

SCALE, FILLS, BOOLEANS, DECISION = "scale", "fills", "booleans", "decision"
"""Where a file of models has views: by what features are scaled before models see them, what fills gaps, words, and how
scores of one of two classes are read, by view."""


LINK, TARGET = "link_", "target_"
"""With what the numbers of a scale begin that are those of tables of links, and of targets."""


def model_path(folder: Path, seed: int, client: ClientId, when: str) -> Path:
    """Where a client's model stands; ``when`` is best or last."""
    return folder / "models" / f"seed{seed}-client{client}-{when}.safetensors"


def aggregate_path(folder: Path, seed: int, client: ClientId | None, when: str) -> Path:
    """Where the server's model stands, or the one it has for a client; ``when`` is best or last."""
    whose = "aggregate" if client is None else f"client{client}-aggregate"
    return folder / "models" / f"seed{seed}-{whose}-{when}.safetensors"


def answers_path(folder: Path, seed: int, client: ClientId) -> Path:
    """Where the classes stand that the reported model of a client answers on its test items."""
    return folder / "answers" / f"seed{seed}-client{client}.safetensors"


def read_answers(folder: Path | None, seed: int, client: ClientId) -> NDArray[np.int64] | None:
    """[test items] these classes, in a run's folder; None where it keeps none."""
    path = None if folder is None else answers_path(folder, seed, client)
    if path is None or not path.is_file():
        return None
    found: NDArray[np.int64] = tensors_in_file(path.read_bytes())["answers"].numpy()
    return found


def embedding_path(folder: Path, seed: int, client: ClientId) -> Path:
    """Where a client's embeddings stand."""
    return folder / "embeddings" / f"seed{seed}-client{client}.safetensors"


def tensor_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors in the safetensors format."""
    from safetensors.torch import save

    # A copy each: a method may hold one tensor under two names, which the format refuses.
    return bytes(save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}))


def tensors_in_file(data: bytes) -> Tensors:
    """Named tensors of a file in the safetensors format.

    Raises:
        MessageError: It is not one.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(data))
    except (SafetensorError, ValueError) as error:
        raise MessageError(f"a file of tensors was wanted, and something else came ({error}).") from None


def flatten(models: Mapping[str, Tensors] | None) -> dict[str, Tensor]:
    """The tensors of a client's models as ``view/parameter``, as files hold them."""
    return {
        f"{view}/{name}": tensor.detach()
        for view, tensors in (models or {}).items()
        for name, tensor in tensors.items()
    }


def nest(tensors: Tensors) -> dict[str, dict[str, Tensor]]:
    """The models of such tensors: view to parameters."""
    models: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        view, _, parameter = name.partition("/")
        models.setdefault(view, {})[parameter] = tensor
    return models


def kept_tensors(found: Mapping[str, Any], when: str) -> dict[str, Tensor]:
    """What a client's file holds: its models, and the scale, the fill values and the words that they need.

    Args:
        found: As a runtime's ``finish`` gives it.
        when: best or last.
    """
    weights = flatten(found[when])
    beside = (SCALE, FILLS, BOOLEANS, *([DECISION] if when == "best" else []))
    return {**weights, **flatten({name: found.get(name, {}) for name in beside})} if weights else {}


def kept_files(
    folder: Path, seed: int, client: ClientId, found: Mapping[str, Any], *, models: bool = True
) -> Iterator[tuple[Path, Tensors]]:
    """Each file that is kept of a client at the end of a seed, and what it holds.

    Args:
        folder: Of the run, or of the silo's own results.
        seed: Of the run.
        client: Whose.
        found: As a runtime's ``finish`` gives it.
        models: Whether its models are kept.
    """
    for when in ("best", "last") if models else ():
        if weights := kept_tensors(found, when):
            yield model_path(folder, seed, client, when), weights
    for name, path in (("embeddings", embedding_path), ("answers", answers_path)):
        if name in found:
            yield path(folder, seed, client), {name: found[name]}


@dataclass(frozen=True)
class Kept:
    """What a client's file holds.

    Attributes:
        models: View to parameters.
        common: The server's model, where it is kept with the client's.
        scale: By what features were scaled, if they were.
        fills: What an empty cell of each feature was filled with, by the feature's name.
        booleans: Words of 0 and words of 1 of each feature that was a truth value where the models were trained.
        decisions: By view, what validation items chose, as far as it is kept: an ``evaluate.rare.Decision``.
    """

    models: dict[str, Tensors]
    common: Tensors | None
    scale: FeatureScale | None
    fills: dict[str, float]
    booleans: dict[str, Words]
    decisions: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, tensors: Tensors) -> Kept:
        """From the tensors of such a file."""
        views = nest(tensors)
        scale, fills, booleans = views.pop(SCALE, None), views.pop(FILLS, {}), views.pop(BOOLEANS, {})
        common, decisions = views.pop(COMMON, None), views.pop(DECISION, {})
        return cls(
            {**views},
            common,
            None if scale is None else scale_of(scale),
            {name: float(value) for name, value in fills.items()},
            words_of({name: json.loads(bytes(value.tolist())) for name, value in booleans.items()}),
            {view: numbers.tolist() for view, numbers in decisions.items()},
        )


def fill_tensors(fills: Mapping[str, float]) -> dict[str, Tensor]:
    """Fill values as models' files and checkpoints hold them."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in fills.items()}


def word_tensors(booleans: Mapping[str, Words]) -> dict[str, Tensor]:
    """Words of truth values as models' files and checkpoints hold them: JSON in UTF-8, byte by byte."""
    return {
        name: torch.tensor(list(json.dumps(words, ensure_ascii=False).encode()), dtype=torch.uint8)
        for name, words in booleans.items()
    }


def scale_tensors(scale: FeatureScale) -> dict[str, Tensor]:
    """A scale as models' files and checkpoints hold it."""
    found = {"shift": torch.from_numpy(scale.shift), "factor": torch.from_numpy(scale.factor)}
    for start, part in ((LINK, scale.links), (TARGET, scale.targets)):
        if part is not None:
            found |= {f"{start}{name}": tensor for name, tensor in scale_tensors(part).items()}
    return found


def scale_of(tensors: Tensors) -> FeatureScale:
    """The scale of such tensors."""
    parts = [
        {name: tensors[f"{start}{name}"] for name in ("shift", "factor") if f"{start}{name}" in tensors}
        for start in (LINK, TARGET)
    ]
    shift, factor = (tensors[name].numpy().copy() for name in ("shift", "factor"))
    return FeatureScale(shift, factor, *(scale_of(part) if part else None for part in parts))
