from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.measures import auc
from graphsilo.data.graph import Graph, content_hash
from graphsilo.data.sources.hospital import Hospital
from graphsilo.data.sources.institutions import FIRST_DAY
from graphsilo.errors import ConfigError

SETTINGS = {"patients": 3000, "hospitals": 5, "seed": 1}


@pytest.fixture(scope="module")
def made() -> Graph:
    return Hospital.of(SETTINGS).generate()


def rows_of(graph: Graph, relation: str) -> np.ndarray:
    assert graph.links is not None
    return graph.links.ends[:, graph.links.of_link == graph.links.relations.index(relation)]


def test_same_settings_same_tables(made: Graph) -> None:
    again, other = Hospital.of(SETTINGS).generate(), Hospital.of({**SETTINGS, "seed": 2}).generate()
    assert content_hash([again]) == content_hash([made]) != content_hash([other])


def test_stays_are_classified_and_every_hospital_has_both_classes(made: Graph) -> None:
    assert made.types is not None
    assert made.owners is not None
    assert made.types.names == ("stay", "patient", "ward", "drug", "diagnosis")
    assert (made.labels[~made.types.targets] == -1).all()
    counts = [np.bincount(made.owners.of_node[made.labels == label], minlength=5) for label in (0, 1)]
    assert np.min(counts) >= 1
    known = made.labels[made.labels >= 0]
    assert 0.1 < known.mean() < 0.2


def test_who_is_readmitted_comes_again_within_thirty_days(made: Graph) -> None:
    assert made.time is not None
    assert made.links is not None
    assert made.links.time is not None
    follows = made.links.of_link == made.links.relations.index("follows")
    (one, _), begun = made.links.ends[:, follows], made.links.time[follows]
    soon = np.zeros(made.num_nodes, dtype=np.bool_)
    soon[one[begun - made.time[one] <= 30]] = True
    # Some came back and were still there when the tables ended, which no table tells.
    assert soon[made.labels == 1].mean() > 0.95
    assert not soon[made.labels == 0].any()
    last = made.time > FIRST_DAY + 365 - 30
    assert (made.labels[last] == -1).all()


def test_rooms_are_shared_within_a_ward_and_told_to_who_leaves_later(made: Graph) -> None:
    assert made.time is not None
    stay, ward = rows_of(made, "at")
    of_stay = np.full(made.num_nodes, -1)
    of_stay[stay] = ward
    one, other = rows_of(made, "room")
    assert (of_stay[one] == of_stay[other]).all()
    assert (made.time[one] <= made.time[other]).all()


def test_nobody_gets_the_same_drug_twice(made: Graph) -> None:
    given = rows_of(made, "given")
    assert len(np.unique(given, axis=1).T) == len(given.T)


def test_no_column_of_a_stay_decides(made: Graph) -> None:
    known = made.labels >= 0
    columns = np.asarray(made.features)[known]
    scores = [auc(column.astype(np.float64), made.labels[known] == 1) or 0.5 for column in columns.T]
    assert max(max(score, 1 - score) for score in scores) < 0.65


def test_patients_of_two_hospitals_are_nodes_of_nobody() -> None:
    graph = Hospital.of({"patients": 1000, "shared_patients": 0.4, "hospitals": 40}).generate()
    assert graph.owners is not None
    stay, patient = rows_of(graph, "of")
    shared = graph.owners.of_node[patient] == -1
    assert 0.2 < shared.mean() < 0.6
    assert (graph.owners.of_node[stay] == graph.owners.of_node[patient])[~shared].all()
    assert set(graph.owners.of_node[stay].tolist()) == set(range(40))


@pytest.mark.parametrize(("setting", "value"), [("hospitals", 2), ("patients", 10), ("positives", 0.9), ("months", 1)])
def test_settings_out_of_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"data\.{setting}"):
        Hospital.of({setting: value})
