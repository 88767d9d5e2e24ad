"""Cuts of a person's own: client numbers, lists of nodes, and functions that make them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.partition.own import client_numbers, cut_by_owner, cut_of, rule_of
from graphsilo.errors import ConfigError, PartitionError
from kit.own import SMALL


def parts(cut) -> list[list[int]]:
    return [nodes.tolist() for nodes in cut.nodes]


@pytest.mark.parametrize("numbers", [[1, 0, -1, 1], np.array([1, 0, -1, 1]), torch.tensor([1, 0, -1, 1])], ids=type)
def test_one_number_per_node(numbers):
    assert parts(cut_of(numbers, 4, "it")) == [[1], [0, 3]]


def test_the_nodes_of_each_client():
    assert parts(cut_of([[3, 0], np.array([1])], 4, "it")) == [[0, 3], [1]], "in whatever order they come"
    with pytest.raises(PartitionError, match=r"it gives client 1 of 2 no node"):
        cut_of([[0], []], 4, "it")


def test_so_many_clients_and_no_other():
    owners = np.array([0, 1, 1])
    assert len(cut_by_owner(owners, 3, "it", clients=2).nodes) == 2
    with pytest.raises(PartitionError, match=r"gives client 2 of 3 no node.*ask for as many clients as there are"):
        cut_by_owner(owners, 3, "it", clients=3)
    with pytest.raises(PartitionError, match=r"names client 1, but 1 clients are numbered 0 to 0"):
        cut_by_owner(owners, 3, "it", clients=1)
    with pytest.raises(PartitionError, match=r"names client 1000000000, but clients are numbered from 0 without a gap"):
        cut_by_owner(np.array([0, 1, 10**9]), 3, "it")


def test_no_numbers():
    assert client_numbers([], "it").dtype == np.int64
    with pytest.raises(PartitionError, match=r"it should be a list or array \[n\] of whole numbers; got 'abc'"):
        client_numbers("abc", "it")


def halves(graph, clients, seed, swap: bool = False):
    """The first nodes and the last."""
    owners = np.arange(graph.num_nodes) * clients // graph.num_nodes
    return clients - 1 - owners if swap else owners


def test_a_function_is_a_rule_with_its_parameters_as_settings():
    import graphsilo

    rule = rule_of("mine.halves", halves)
    assert (rule.summary, list(rule.options.model_fields)) == ("The first nodes and the last", ["swap"])
    graph = graphsilo.load(**SMALL)
    plain, swapped = (parts(rule.cut(graph, 2, 0, rule.options.of({"swap": swap}))) for swap in (False, True))
    assert plain == swapped[::-1]
    with pytest.raises(ConfigError, match=r"partition\.swap must be true or false; got 3"):
        rule.options.of({"swap": 3})
    with pytest.raises(ConfigError, match=r"should take \(graph, clients, seed\); it takes \(graph\)"):
        rule_of("mine.short", lambda graph: None)
