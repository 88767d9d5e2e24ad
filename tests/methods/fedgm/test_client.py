"""FedGM's client: what it condenses, and what leaves its silo."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.errors import ConfigError, FederationError
from graphsilo.methods.fedgm.client import condensed_labels
from graphsilo.training import condensation
from kit.fedgm import built
from kit.messages import check_sent


@pytest.mark.parametrize(
    ("counts", "ratio", "sizes"),
    [
        ([20, 3, 9], 0.25, [6, 0, 2]),  # ⌊8⌋ in all: what the classes' ⌊5⌋ + ⌊0.75⌋ + ⌊2.25⌋ lack has the largest
        ([3, 2, 0], 0.1, [1, 0, 0]),
        ([0, 0, 0], 0.5, [0, 0, 0]),
        ([100, 0, 0], 0.29, [29, 0, 0]),
        ([1, 4, 2], 1.0, [1, 4, 2]),
        ([600, 192, 8], 0.5, [38, 12, 0]),  # 50 of 800 is a share of 1/16: 37.5, 12 and 0.5
    ],
)
def test_how_many_condensed_nodes_a_class_has(counts, ratio, sizes):
    labels = condensed_labels(np.array(counts), ratio, 50)
    assert np.bincount(labels, minlength=3).tolist() == sizes
    assert (np.diff(labels) >= 0).all()


@pytest.mark.parametrize("links", ["learned", "cosine"])
def test_more_pairs_than_fit_are_refused(kit, monkeypatch, links):
    monkeypatch.setattr(condensation, "PAIR_BYTES", 100)
    server, federation = built(kit, links=links)
    with pytest.raises((ConfigError, FederationError), match=r"every pair of the 3 nodes.*Lower method\.ratio"):
        kit.rounds(server, federation)
    server, federation = built(kit, links="edgeless")
    kit.rounds(server, federation)


def test_what_leaves_a_silo():
    check_sent(
        "fedgm",
        """
        condense features: synthetic float32 [nodes, features] recoverable per_class=True largest=1000000000.0 in part
        condense sizes: counts int64 [classes] per_class=True
        condense links: synthetic float32 [pairs] per_class=True
        gradients gradients: gradient float32 recoverable per_class=True largest=1e+16 where a class has few nodes
        gradients sizes: counts int64 [classes] per_class=True
        score counts: counts int64 [models, classes, classes]
        score ranked: score float64
        adopt clients: counts
        """,
    )
