"""What the clients of one seed are made from, wherever they live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphsilo.data.scales import UNSCALED, Scaling
from graphsilo.data.silos.scaling import FeatureScale, prepare_silo
from graphsilo.data.silos.silo import Silo
from graphsilo.federation.client import ClientBase, ClientContext, ModelSpec, common_model
from graphsilo.federation.compression import UNCOMPRESSED, Compression
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import MethodConfig
from graphsilo.types import ClientId


@dataclass(frozen=True)
class ClientSetup:
    """What the clients of one seed are made from.

    Attributes:
        method, config: What they do.
        models: Each client's backbone.
        seed: Of all their randomness.
        device: Where they compute.
        scaling: How their features are scaled.
        scale: By what, where they agreed on it.
        compression: How they compress the models that they send.
        select_by: Name of the metric of their choices by validation items.
        beside: Folder of the run beside which this one is a reference row, as the holder of the silos has it.
    """

    method: Method
    config: MethodConfig
    models: Mapping[ClientId, ModelSpec]
    seed: int
    device: str = "cpu"
    scaling: Scaling = UNSCALED
    scale: FeatureScale | None = None
    compression: Compression = UNCOMPRESSED
    select_by: str = "accuracy"
    beside: Path | None = None

    @property
    def common(self) -> ModelSpec:
        """The backbone of the common model."""
        return common_model(self.models)

    def tree(self) -> dict[str, Any]:
        """What whoever holds clients elsewhere has to know, as plain values; method, models and scale go beside it."""
        return {
            "seed": self.seed, "device": self.device, "config": self.config.model_dump(mode="json"),
            "common": self.common.wire(), "scaling": self.scaling.tree(), "compression": self.compression.wire(),
            "select_by": self.select_by,
        }  # fmt: skip

    def client(self, silo: Silo) -> ClientBase[Any]:
        """The client that has this silo."""
        own = silo if self.method.client.takes_unscaled else prepare_silo(silo, self.scaling, self.scale)
        spec, beside = self.models[silo.client], None
        if self.beside is not None:
            from graphsilo.federation.model_files import read_answers

            beside = read_answers(self.beside, self.seed, silo.client)
        return self.method.client(
            ClientContext(
                silo.client, own, self.config, spec, self.seed, self.device, self.common,
                compression=self.compression, select_by=self.select_by, beside=beside,
            )
        )  # fmt: skip
