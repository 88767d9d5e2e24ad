"""A model takes the weights that have its own names and shapes, and keeps the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphsilo.errors import MessageError
from graphsilo.federation.model_files import tensor_file
from graphsilo.federation.starts import begin_with, read_start


def test_what_fits_is_taken_and_nothing_else(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(
        tensor_file({"own/weight": torch.full((2, 3), 7.0), "own/bias": torch.ones(9), "scale/shift": torch.ones(3)})
    )
    found = read_start((str(file), "own/"))
    assert set(found) == {"weight", "bias"}
    model = nn.Linear(3, 2)
    drawn = model.bias.detach().clone()
    begin_with(model, found)
    assert torch.equal(model.weight, torch.full((2, 3), 7.0))
    assert torch.equal(model.bias, drawn)  # nine numbers are no bias of two
    file.write_bytes(b"not tensors")
    with pytest.raises(MessageError, match="a file of tensors was wanted"):
        read_start((str(file), ""))
