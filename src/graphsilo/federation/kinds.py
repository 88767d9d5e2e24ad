"""The kinds of disclosure, in words. No torch: a policy is read, and a silo's log printed, without it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "model", "gradient", "prototype", "statistic", "embedding", "generator", "synthetic", "counts", "topology",
    "logits", "score", "control",
]  # fmt: skip

KINDS: dict[str, str] = {
    "model": "model weights",
    "gradient": "gradients of a loss",
    "prototype": "class prototypes: mean embeddings or outputs of many nodes",
    "statistic": "additive statistics of many nodes",
    "embedding": "embeddings of single nodes",
    "generator": "weights of a feature generator",
    "synthetic": "synthetic nodes that were learned, not observed",
    "counts": "how many items there are of something, confusion counts included",
    "topology": "facts about edges",
    "logits": "predictions of single nodes",
    "score": "one number that says how good a model is",
    "control": "settings and message headers, nothing about the data",
}
"""What each kind of disclosure means, in words a data owner understands."""

SHORT: dict[str, str] = {
    "model": "model weights",
    "gradient": "gradients",
    "prototype": "class prototypes",
    "statistic": "additive statistics",
    "embedding": "embeddings of single nodes",
    "generator": "generator weights",
    "synthetic": "synthetic nodes",
    "counts": "counts",
    "topology": "facts about edges",
    "logits": "predictions of single nodes",
    "score": "scores",
    "control": "control",
}
"""The same in a word or two, for lists."""

LARGEST_WEIGHT = 1e6
"""Largest size of a model's weight that is taken from a client, where nobody sets another (``run.largest_value``)."""

LARGEST_RATIO = 100.0
"""How many times as large as at half of the others a field of an answer may be (``federation.outliers``), where nobody
says otherwise (``run.largest_ratio``). Honest silos on cuts of real graphs stay within 10, in every method."""

WEIGHTS: frozenset[Kind] = frozenset({"model", "generator"})
"""Kinds for which that bound holds."""

LARGEST: dict[Kind, float] = {
    "gradient": 1e18,
    "prototype": 1e18,
    "statistic": 1e36,
    "embedding": 1e18,
    "synthetic": 1e18,
    "counts": 2.0**53,
    "topology": 2.0**53,
    "logits": 1e18,
    "score": 1e18,
    "control": 2.0**53,
}
"""Largest size of a number of any other kind. What is made of features has their units, be it cells per litre, and its
square must still be a float32 number; a statistic may be such a square. A count is exact up to 2^53."""

LARGEST_WHOLE = 2**53
"""Largest size of a whole number of any kind: a float64 holds it exactly."""

MASKED = " (masked)"
"""After a message's name, in ledgers and logs: it was sent in a secure sum."""


def describe_compression(way: str, share: float) -> str:
    """How model weights leave a silo with ``run.compression``, to stand behind their name.

    Args:
        way: ``int8`` or ``topk``.
        share: ``run.top_share``, from 0 to 1.

    Example:
        >>> describe_compression("int8", 0.01)
        'as their change: 1 byte for each number, not 4 (run.compression=int8)'
    """
    how = {
        "int8": "their change: 1 byte for each number, not 4",
        "topk": f"the largest {100 * share:g} % of their change: 8 bytes for each of these numbers, not 4 for all",
    }
    return f"as {how[way]} (run.compression={way})"
