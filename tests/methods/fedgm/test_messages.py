"""Answers that no client of FedGM gives."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.federation.message import Empty
from graphsilo.methods.fedgm.messages import CondensedGraph, GradientReply, GradientRequest
from kit.fedgm import built


def test_a_graph_that_is_none_is_refused(kit):
    rows, sizes, links = torch.ones(3, 2), torch.tensor([1, 2]), torch.tensor([0.5, 0.0, 1.0])
    CondensedGraph(features=rows, sizes=sizes, links=links).check()
    CondensedGraph(features=rows, sizes=sizes, links=links[:0]).check()
    for wrong in ({"sizes": torch.tensor([1, 1])}, {"links": links[:2]}, {"links": 2 * links}, {"links": -links}):
        with pytest.raises(MessageError, match="CondensedGraph"):
            CondensedGraph(**{"features": rows, "sizes": sizes, "links": links, **wrong}).check()
    graph = CondensedGraph(features=rows, sizes=sizes, links=links)
    graph.check_size(Empty(), 3, 0)
    with pytest.raises(MessageError, match="made of 2 at most"):
        graph.check_size(Empty(), 2, 0)
    server, _ = built(kit)
    with pytest.raises(MessageError, match="3 features and 2 classes"):
        server.check(0, graph)


def test_gradients_that_are_none_are_refused():
    request = GradientRequest(network={"first": torch.ones(4, 5), "second": torch.ones(6, 2)})
    right = {"first": torch.ones(2, 4, 5), "second": torch.ones(2, 6, 2)}
    GradientReply(gradients=right, sizes=torch.tensor([1, 0])).check_answer(request)
    for wrong, sizes in (({"first": torch.ones(3, 4, 5)}, [1, 0]), ({"third": torch.ones(1)}, [1, 0]), ({}, [1])):
        with pytest.raises(MessageError, match="2 classes"):
            GradientReply(gradients={**right, **wrong}, sizes=torch.tensor(sizes)).check_answer(request)
    with pytest.raises(MessageError, match="counts 3 nodes"):
        GradientReply(gradients=right, sizes=torch.tensor([1, 2])).check_size(request, 2, 0)
