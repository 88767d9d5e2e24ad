from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.graph import Graph
from graphsilo.data.partition import audit, entry, partition, registry, rules
from graphsilo.errors import ConfigError, PartitionError

CUTTING = [rule.name for rule in rules() if rule.name not in ("files", "natural")]
SETTINGS = {
    "louvain+": {"virtual_clients": 16, "delta": 2},
    "louvain+plain": {"resolution": 3.0},
    "metis+": {"parts": 11},
    "metis+plain": {"parts": 11},
    "overlap": {"per_part": 2},
}


def noisy_graph(seed: int = 0, nodes: int = 120, classes: int = 4) -> Graph:
    """A planted-partition graph with noise in the labels."""
    generator = np.random.default_rng(seed)
    block = np.arange(nodes) % 8
    pairs = np.stack(np.triu_indices(nodes, 1))
    kept = generator.random(pairs.shape[1]) < np.where(block[pairs[0]] == block[pairs[1]], 0.5, 0.02)
    edges = np.concatenate([pairs[:, kept], pairs[::-1, kept]], axis=1)
    labels = np.where(generator.random(nodes) < 0.3, generator.integers(classes, size=nodes), block % classes)
    return Graph(generator.standard_normal((nodes, 3)).astype(np.float32), edges, labels, classes, name="noisy")


def test_names_and_lines() -> None:
    names = [rule.name for rule in rules()]
    assert names == sorted(names)
    assert {"dirichlet", "louvain", "metis", "random"} <= set(names)
    assert all(rule.summary and "\n" not in rule.summary for rule in rules())
    assert entry("Louvain").name == "louvain"
    with pytest.raises(ConfigError, match="did you mean 'louvain'"):
        entry("luvain")


@pytest.mark.parametrize("rule", CUTTING)
def test_one_client_gets_the_graph_itself(blocks: Graph, rule: str) -> None:
    found = partition(blocks, rule, clients=1)
    np.testing.assert_array_equal(found.nodes[0], np.arange(80))
    assert found.added_edges is None
    assert audit(found, blocks).cut_edges == 0


@pytest.mark.parametrize("rule", CUTTING)
def test_same_seed_same_partition_and_global_state_untouched(rule: str) -> None:
    graph = noisy_graph()
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = partition(graph, rule, clients=4, seed=7, options=SETTINGS.get(rule))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    second = partition(graph, rule, clients=4, seed=7, options=SETTINGS.get(rule))
    assert first.content_hash == second.content_hash
    assert partition(graph, rule, clients=4, seed=8, options=SETTINGS.get(rule)).content_hash != first.content_hash
    first.check(graph)


@settings(max_examples=25, deadline=None)
@given(
    rule=st.sampled_from([name for name in CUTTING if name != "overlap"]),
    seed=st.integers(0, 10_000),
    clients=st.integers(1, 5),
)
def test_every_node_has_one_owner_and_one_split(rule: str, seed: int, clients: int) -> None:
    graph = noisy_graph(seed % 5)
    found = partition(graph, rule, clients=clients, seed=seed, options=SETTINGS.get(rule))
    report = audit(found, graph)
    assert report.is_disjoint_cover
    assert report.train_test_overlap == 0
    for client in range(clients):
        split = np.concatenate([found.train[client], found.val[client], found.test[client]])
        assert sorted(split.tolist()) == sorted(found.nodes[client].tolist())
        # Local edges are exactly the global edges between the client's own nodes.
        inside = graph.subgraph(found.nodes[client])
        added = 0 if found.added_edges is None else 2 * found.added_edges[client].shape[1]
        assert report.per_client[client].edges == inside.num_edges + added


def test_impossible_numbers_of_clients_are_refused(two_triangles: Graph) -> None:
    with pytest.raises(ConfigError, match=r"^partition\.clients must be at least 1; got 0\.$"):
        partition(two_triangles, "metis", clients=0)
    with pytest.raises(PartitionError, match="ask for at most 6"):
        partition(two_triangles, "metis", clients=7)


def test_unknown_settings_are_refused(two_triangles: Graph) -> None:
    with pytest.raises(ConfigError, match=r"'partition\.dleta' for louvain; did you mean 'partition\.delta'"):
        partition(two_triangles, "louvain", clients=2, options={"dleta": 3})
    with pytest.raises(ConfigError, match=r"partition\.split must be one of .*Did you mean 'stratified'"):
        partition(two_triangles, "louvain", clients=2, split="stratifed")
    with pytest.raises(ConfigError, match="add up to 1"):
        partition(two_triangles, "louvain", clients=2, ratios=(0.5, 0.5, 0.5))


def test_importing_the_rules_loads_no_heavy_library() -> None:
    heavy = "torch", "torch_geometric", "sklearn", "sknetwork", "pymetis", "pandas"
    code = (
        "import sys, graphsilo.data.partition, graphsilo.data.silos.scenarios, graphsilo.data.silos.perturb;"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_rules_of_other_packages_come_beside_those_of_graphsilo(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def __init__(self, rule: object) -> None:
            self.rule = rule

        def load(self) -> object:
            return self.rule

    def installed(*found: object) -> None:
        monkeypatch.setattr(registry, "entry_points", lambda group: [Point(rule) for rule in found])
        registry._rules.cache_clear()

    metis = entry("metis")
    try:
        installed(replace(metis, name="theirs"), replace(entry("random"), name="metis"))
        assert entry("theirs").cut is metis.cut
        assert entry("metis") is metis  # published cuts refer to it
        installed("no rule")
        with pytest.raises(ConfigError, match=r"graphsilo\.partitions must name a Rule"):
            rules()
    finally:
        monkeypatch.undo()
        registry._rules.cache_clear()


def test_a_file_of_rules_is_no_rule() -> None:
    with pytest.raises(ConfigError, match="there is no partition rule 'label_imbalance'"):
        entry("label_imbalance")
