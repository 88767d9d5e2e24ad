"""Trees of whole graphs: the forest of one place, whatever the cut."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from kit.fedtrees import QUICK
from kit.linked_graphs import collection, drawn


def silo_of(client, numbers):
    graph = collection([drawn(number) for number in numbers], labels=[number % 2 for number in numbers])
    place = np.asarray(numbers) // 2 % 4
    items = {name: np.flatnonzero(np.isin(place, which)) for name, which in
             (("train", (0, 1)), ("val", (2,)), ("test", (3,)))}  # fmt: skip
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), Schema("graph", 1, 2))


def test_the_forest_is_that_of_one_place_bit_for_bit(kit):
    numbers, forests = np.arange(90), []
    for cut in ([numbers], [numbers[60:], numbers[:60]], np.array_split(numbers[::-1], 7)):
        silos = [silo_of(client, part.tolist()) for client, part in enumerate(cut)]
        server, federation = kit.build("fedtrees", silos, **QUICK)
        server.set_up(federation)
        for number in range(1, 5):
            kit.rounds(server, federation, start=number)
        forests.append(server.forest)
    assert forests[0]["values"].any()
    for other in forests[1:]:
        assert all(torch.equal(forests[0][name], other[name]) for name in other)
    client = federation.client(0)
    predicted = client.predict(client.data).argmax(1).numpy()
    assert (predicted == client.silo.labels).mean() > 0.9
