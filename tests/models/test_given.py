"""A graph whose first propagation is given."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.models import build
from graphsilo.models.given import GivenTensors
from graphsilo.models.view import normalise

PATH = sp.csr_matrix(np.diag(np.ones(3, np.float32), 1) + np.diag(np.ones(3, np.float32), -1))
MATRIX = normalise(PATH, "gcn")
FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)


def model():
    return build("gcn", num_features=2, num_classes=2, seed=0, hidden=3, dropout=0.0)


@pytest.mark.parametrize("how", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_a_convolution_on_given_rows_is_the_one_on_features(how):
    """relu((ÂX) W + b) propagated once more; ``full`` means own nodes, any view its rows."""
    given = GivenTensors(MATRIX, how(MATRIX @ FEATURES), 3, 2, "cpu")
    net = model()
    (first, bias), (second, other) = ([*layer.parameters()] for layer in net.layers)
    first, second = (weight if weight.shape[0] == rows else weight.t() for weight, rows in ((first, 2), (second, 3)))
    hidden = torch.relu(torch.from_numpy(MATRIX @ FEATURES) @ first + bias)
    expected = torch.from_numpy(MATRIX.toarray()) @ hidden @ second + other
    assert torch.allclose(net(given.full), expected[:3], atol=1e-6)
    assert torch.allclose(net(given.view(np.array([2, 0]))), expected[[2, 0]], atol=1e-6)
    assert given.full is given.full


def test_layers_that_weigh_neighbours_otherwise_are_refused():
    given = GivenTensors(MATRIX, MATRIX @ FEATURES, 4, 2, "cpu")
    with pytest.raises(UnsupportedError, match="graph convolutions"):
        build("sage", num_features=2, num_classes=2, seed=0, hidden=3)(given.full)
    with pytest.raises(UnsupportedError, match="no features"):
        build("mlp", num_features=2, num_classes=2, seed=0, hidden=3)(given.full)
