"""A client without a backbone, whose whole model is one number."""

from __future__ import annotations

import torch

from graphsilo.federation.client import ClientBase
from graphsilo.federation.settings import MethodConfig


class OneNumber(ClientBase[MethodConfig]):
    """Its model is one number, its embeddings are twice that; a subclass may say what it predicts."""

    model = 1.0

    def predict(self, data, view="own"):
        return torch.zeros(2, 2)

    def state(self):
        return {"model": self.model}

    def load_state(self, state):
        self.model = state["model"]

    def final_models(self):
        return {"own": {"x": torch.tensor([self.model])}}

    def load_final(self, models):
        self.model = float(models["own"]["x"])

    def embed(self, data):
        return torch.full((2, 1), 2 * self.model)

    def study(self):
        return {"model": self.model}
