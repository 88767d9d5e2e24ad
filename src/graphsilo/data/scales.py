"""Which scaling of features is asked for; how it is done stands in :mod:`graphsilo.data.silos.scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from graphsilo.errors import ConfigError
from graphsilo.settings import Settings, setting

ScaleName: TypeAlias = Literal["none", "standard", "robust", "unit_rows"]
ScaleBy: TypeAlias = Literal["silo", "federation"]


class ScaleOptions(Settings):
    """What a person may say of scaling; no word takes the usual one."""

    section: ClassVar[str] = "data"

    scale: ScaleName | None = setting(
        None, "how features are scaled: to mean 0 and deviation 1, to median 0 and the quartiles of a normal "
        "distribution, or each node's to an L1 norm of 1; null: own tables standard, all else none",
    )  # fmt: skip
    scale_by: ScaleBy | None = setting(
        None, "whose rows count for it: each silo's own or the whole federation's; none: the federation's for standard"
    )


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
    def of(cls, scale: ScaleName | None, scale_by: ScaleBy | None, *, own_tables: bool, where: str = "data") -> Scaling:
        """The scaling that a person asked for, or the usual one.

        Args:
            scale, scale_by: As given; None where nothing was said. Tables of one's own are standard by federation
                unless said otherwise, all else is as it is.
            own_tables: Whether the data are such tables.
            where: What errors call the place.

        Raises:
            ConfigError: The two do not go together.
        """
        chosen: ScaleName = scale or ("standard" if own_tables else "none")
        if scale_by is not None and chosen not in ("standard", "robust"):
            raise ConfigError(
                f"{where}.scale_by says whose means and deviations count, and scale: {chosen} has none. Leave "
                f"scale_by out, or ask for scale: standard."
            )
        if chosen == "robust" and scale_by == "federation":
            raise ConfigError(
                f"{where}.scale: robust takes medians and quartiles, which cannot be made from sums, and sums are all "
                f"that silos give away for scaling. Use scale: standard with scale_by: federation, or scale: robust "
                f"with scale_by: silo."
            )
        usual: ScaleBy = "federation" if chosen == "standard" else "silo"
        return cls(chosen, scale_by or usual)

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
        """The same for a silo that is alone."""
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
        options = ScaleOptions.of({key: tree[key] for key in ("scale", "scale_by")})
        by = options.scale_by if options.scale in ("standard", "robust") else None
        return cls.of(options.scale, by, own_tables=False)

    def words(self) -> str:
        """For people: ``standard, by federation``."""
        return f"{self.scale}, by {self.scale_by}" if self.has_columns else self.scale


UNSCALED = Scaling()
"""Features as they were read."""
