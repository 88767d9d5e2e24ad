"""Which scaling of features is asked for; how it is done stands in :mod:`graphsilo.data.silos.scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from graphsilo.errors import ConfigError, nearest

ScaleName: TypeAlias = Literal["none", "standard", "robust", "unit_rows"]
ScaleBy: TypeAlias = Literal["silo", "federation"]


@dataclass(frozen=True)
class Scaling:
    """How features are scaled.

    Attributes:
        scale: ``none``; ``standard``, to mean 0 and standard deviation 1; ``robust``, to median 0 and the quartiles of
            a normal distribution; or ``unit_rows``, each row to an L1 norm of 1.
        scale_by: Whose rows count: each ``silo``'s own, or the whole ``federation``'s.
    """

    scale: ScaleName = "none"
    scale_by: ScaleBy = "silo"

    @classmethod
    def of(cls, scale: Any, scale_by: Any, *, own_tables: bool, where: str = "the data options") -> Scaling:
        """The scaling that a person asked for, or the usual one.

        Args:
            scale, scale_by: As given; None where nothing was said. Tables of one's own are standard by federation
                unless said otherwise, all else is as it is.
            own_tables: Whether the data are such tables.
            where: What errors call the place.

        Raises:
            ConfigError: A word is unknown, or the two do not go together.
        """
        for key, value, known in (("scale", scale, get_args(ScaleName)), ("scale_by", scale_by, get_args(ScaleBy))):
            if value is not None and (not isinstance(value, str) or value not in known):
                raise ConfigError(
                    f"{where}: {key} must be one of {', '.join(known)}; got {value!r}. {nearest(str(value), known)}"
                )
        chosen = scale or ("standard" if own_tables else "none")
        if scale_by is not None and chosen not in ("standard", "robust"):
            raise ConfigError(
                f"{where}: scale_by says whose means and deviations count, and scale: {chosen} has none. Leave "
                f"scale_by out, or ask for scale: standard."
            )
        if chosen == "robust" and scale_by == "federation":
            raise ConfigError(
                f"{where}: scale: robust takes medians and quartiles, which cannot be made from sums, and sums are all "
                f"that silos give away for scaling. Use scale: standard with scale_by: federation, or scale: robust "
                f"with scale_by: silo."
            )
        usual = "federation" if chosen == "standard" else "silo"
        return cls(cast("ScaleName", chosen), cast("ScaleBy", scale_by or usual))

    @property
    def has_columns(self) -> bool:
        """Whether columns are shifted and stretched, by numbers that must be found first."""
        return self.scale in ("standard", "robust")

    @property
    def is_agreed(self) -> bool:
        """Whether all silos find these numbers together."""
        return self.has_columns and self.scale_by == "federation"

    @property
    def alone(self) -> Scaling:
        """The same for who does not hear of others."""
        return replace(self, scale_by="silo") if self.has_columns else self

    def tree(self) -> dict[str, str]:
        """As plain values."""
        return {"scale": self.scale, "scale_by": self.scale_by}

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Scaling:
        """Of such values, as another process sent them.

        Raises:
            ConfigError: They name no scaling.
        """
        by = tree["scale_by"] if tree["scale"] in ("standard", "robust") else None
        return cls.of(tree["scale"], by, own_tables=False)

    def words(self) -> str:
        """For people: ``standard, by federation``."""
        return f"{self.scale}, by {self.scale_by}" if self.has_columns else self.scale


UNSCALED = Scaling()
"""Features as they were read."""
