"""Settings of a method, typed once at the edge."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graphsilo.errors import ConfigError, nearest


def setting(default: Any, description: str, *, source: str = "", **bounds: Any) -> Any:
    """A setting with its default, what it means, where the default comes from, and its bounds (ge, gt, le, lt)."""
    return Field(default, description=description, json_schema_extra={"source": source}, **bounds)


class Settings(BaseModel):
    """Base of every group of settings: frozen, and unknown names are refused with the nearest valid one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    raise ConfigError(
                        f"unknown setting '{name}' for {cls.label()}; {nearest(str(name), cls.model_fields)}"
                    )
        return values

    @classmethod
    def label(cls) -> str:
        """How errors name this group."""
        return cls.__name__.removesuffix("Config").removesuffix("Settings").removesuffix("Section").lower()


class MethodConfig(Settings):
    """What every method has."""

    rounds: int = setting(100, "communication rounds", source="OpenFGL", ge=1)
    participation: float = setting(
        1.0, "share of clients per round: int(clients * share), at least one, drawn uniformly", source="OpenFGL",
        gt=0, le=1,
    )  # fmt: skip
    min_clients: int | None = setting(
        None, "fewest answers a round goes on with; none means that every client asked must answer", ge=1
    )

    @property
    def chooses_by_validation(self) -> bool:
        """Whether clients choose something by the score on their own validation nodes, such as when to stop."""
        return False


class LocalTrainingConfig(MethodConfig):
    """For methods whose clients run local epochs."""

    local_epochs: int = setting(3, "passes over the local training items per round", source="OpenFGL", ge=1)
    batch_size: int = setting(
        0, "items per step; 0 is the full batch (graph classification: 64 unless set)", source="OpenFGL", ge=0
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "local optimiser", source="OpenFGL")
    lr: float = setting(1e-2, "learning rate", source="OpenFGL", gt=0)
    weight_decay: float = setting(5e-4, "L2 weight decay", source="OpenFGL", ge=0)
    momentum: float = setting(0.0, "momentum of sgd", ge=0, lt=1)
    reset_optimizer: bool = setting(
        False, "forget the optimiser's moments at each download", source="OpenFGL keeps them"
    )
