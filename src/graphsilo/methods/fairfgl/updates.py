"""What FairFGL's server and clients do with model updates: keep the largest entries, code them, compare them.

Source: Wu et al., "Towards Unbiased Federated Graph Learning: Label and Topology Perspectives" (FairFGL, arXiv 2025).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError


class SparseUpdate(NamedTuple):
    """A flattened model change of P entries, of which m are there. The form says how the places are coded.

    Attributes:
        values: [m] float32, in the order of their places; [P] in the dense form.
        positions: [m] int32, ascending, in the form of pairs: 8 m bytes.
        bitmap: [ceil(P / 8)] uint8, lowest bit first, in the form of a bitmap: 4 m + P / 8 bytes.
    """

    values: Tensor
    positions: Tensor | None = None
    bitmap: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors, without the wire's padding."""
        return sum(part.numel() * part.element_size() for part in self if part is not None)


def keep_largest(change: Tensor, share: float) -> SparseUpdate:
    """The entries of a change at or above the (1 - share) quantile of their size, in the shortest coding.

    With the quantile between neighbours interpolated, floor(share · (P - 1)) + 1 entries are kept, and more where the
    smallest of them has equals. Entries of 0 say nothing and are left out.

    Args:
        change: [P] float32.
        share: k of top-k, above 0 and at most 1.

    Source: FairFGL, upload of the most changed parameters. Deviation: the paper prints the absolute change; what is
    sent keeps its sign, as an update must.

    Example:
        >>> keep_largest(torch.tensor([0.1, -3.0, 0.0, 2.0]), 0.5).values.tolist()
        [-3.0, 2.0]
    """
    flat = change.detach().cpu().numpy()
    size = np.abs(flat)
    total = len(flat)
    if share < 1 and total:
        kept = math.floor(share * (total - 1) + 1e-9) + 1
        least = np.partition(size, total - kept)[total - kept]
        mask = size >= max(least, np.finfo(np.float32).smallest_subnormal)
    else:
        mask = size > 0
    count = int(np.count_nonzero(mask))
    dense, bitmap, pairs = 4 * total, 4 * count + (total + 7) // 8, 8 * count
    if dense <= min(bitmap, pairs):
        return SparseUpdate(torch.from_numpy(np.where(mask, flat, np.float32(0))))
    # Indexing by a mask that looks random costs five times as much: the processor cannot guess its branches.
    values = torch.from_numpy(flat.compress(mask))
    if bitmap <= pairs:
        return SparseUpdate(values, bitmap=torch.from_numpy(np.packbits(mask, bitorder="little")))
    return SparseUpdate(values, positions=torch.from_numpy(np.flatnonzero(mask).astype(np.int32)))


def expand(update: SparseUpdate, total: int) -> Tensor:
    """The change as it was sent, [total] float32 with zeros where nothing was.

    Raises:
        MessageError: The values, places and the model's size do not fit together.
    """
    values, positions, bitmap = update
    if values.dtype is not torch.float32 or values.dim() != 1 or (positions is not None and bitmap is not None):
        raise MessageError("an update must hold a list of float32 values, and positions or a bitmap but not both.")
    if positions is None and bitmap is None:
        _require(len(values), total, "values")
        return values.clone()
    if bitmap is not None:
        _require(bitmap.numel(), (total + 7) // 8, "bytes of bitmap")
        place = np.flatnonzero(np.unpackbits(bitmap.cpu().numpy().view(np.uint8), bitorder="little").view(np.bool_))
        _require(len(values), len(place), "values")
    else:
        assert positions is not None
        place = positions.cpu().numpy()
        _require(len(values), len(place), "values")
        if len(place) and (place[0] < 0 or bool((np.diff(place) <= 0).any())):
            raise MessageError("an update's positions must ascend from 0 or more.")
    if len(place) and int(place[-1]) >= total:
        raise MessageError(f"an update names entry {int(place[-1])}; the model has {total}.")
    result = np.zeros(total, dtype=np.float32)
    result[place] = values.cpu().numpy()
    return torch.from_numpy(result)


def _require(came: int, wanted: int, what: str) -> None:
    if came != wanted:
        raise MessageError(
            f"an update must have {wanted} {what}; {came} came. Server and clients must use the same model."
        )


def gram(updates: Tensor, *, block: int = 1 << 16) -> NDArray[np.float64]:
    """[K, K] inner products of the rows of ``updates`` [K, P], in float64, a block of columns at a time."""
    total = np.zeros((len(updates), len(updates)))
    for part in updates.split(block, dim=1):
        wide = part.double().numpy()
        total += wide @ wide.T
    return total


def most_dissimilar(products: NDArray[np.float64]) -> NDArray[np.int64]:
    """[K] for each update the other one with the smallest cosine, the first of equals; -1 where there is none.

    An update of zeros has no direction and is nobody's.
    """
    norms = np.sqrt(np.clip(products.diagonal(), 0.0, None))
    scale = np.where(norms > 0, norms, 1.0)
    cosine = products / scale[:, None] / scale[None, :]
    cosine[:, norms == 0] = np.inf
    np.fill_diagonal(cosine, np.inf)
    if len(cosine) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.where(np.isinf(cosine).all(axis=1), -1, cosine.argmin(axis=1)).astype(np.int64)
