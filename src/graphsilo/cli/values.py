"""Values of flags that stand for several."""

from __future__ import annotations

from graphsilo.errors import ConfigError


def whole_numbers(text: str, option: str) -> list[int]:
    """``0,1,4-6`` as [0, 1, 4, 5, 6].

    Raises:
        ConfigError: It is something else.
    """
    found: list[int] = []
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        if not part:
            continue
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"{option} takes whole numbers such as 0,1,2 or 0-4; got '{text}'.")
        found.extend(range(int(first), int(last) + 1) if dash else [int(first)])
    if not found:
        raise ConfigError(f"{option} takes whole numbers such as 0,1,2 or 0-4; got '{text}'.")
    return found
