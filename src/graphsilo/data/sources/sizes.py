"""How much memory things take, in words, and a refusal before they take it."""

from __future__ import annotations

from graphsilo.errors import UnsupportedError


def in_words(size: float) -> str:
    """Bytes as a person reads them, in powers of ten.

    Example:
        >>> in_words(9_600_000_000), in_words(512)
        ('9.6 GB', '512 bytes')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def dense_bytes(rows: int, columns: int, *, matrices: int = 1) -> int:
    """Bytes of dense float32 matrices."""
    return 4 * matrices * rows * columns


def require_memory(needed: int, free: int | None, *, what: str, instead: str) -> None:
    """Refuse what cannot fit before it is begun.

    Args:
        needed: Bytes that it takes at the very least.
        free: Bytes that there are; None where the system does not say, then nothing is refused.
        what: What takes them, as the subject of a sentence, e.g. "a dense 2400000 × 1000 matrix of features".
        instead: What to do, as a sentence.

    Raises:
        UnsupportedError: It does not fit.
    """
    if free is not None and needed > free:
        raise UnsupportedError(f"{what} needs {in_words(needed)} of memory, and {in_words(free)} are there. {instead}")
