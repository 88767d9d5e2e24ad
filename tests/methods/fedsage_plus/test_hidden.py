"""What FedSage+ hides from its generator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kit.fedsage_plus import SMALL

# -- the impaired graph ----------------------------------------------------------------------------------------------


def test_half_of_the_others_are_hidden(kit):
    silo = kit.tiny_silo(0, nodes=20, train=(0, 1, 2))
    _, federation = kit.build("fedsage_plus", [silo], hidden_share=0.5, **SMALL)
    client = federation.client(0)
    hidden = client.hidden_nodes()
    assert len(hidden) == len(client.silo.seen.items["val"]) // 2
    assert set(hidden) <= set(client.silo.seen.items["val"])
    assert np.array_equal(hidden, client.hidden_nodes())


@pytest.mark.parametrize(("share", "count"), [(0.5, 5), (0.3, 3), (0.95, 5)])
def test_half_of_the_training_nodes_are_hidden_at_most_where_there_are_no_others(kit, share, count):
    silo = kit.tiny_silo(0, nodes=12, train=range(10))
    seen = replace(silo.seen, items={"train": np.arange(10), "val": np.zeros(0, np.int64), "test": np.array([10, 11])})
    _, federation = kit.build("fedsage_plus", [replace(silo, evaluations=(seen,))], hidden_share=share, **SMALL)
    hidden = federation.client(0).hidden_nodes()
    assert len(hidden) == count
    assert set(hidden) <= set(range(10))


# -- losses ----------------------------------------------------------------------------------------------------------
