from __future__ import annotations

import numpy as np
import pytest

from graphsilo.attacks.measures import auc
from graphsilo.data.graph import Graph, content_hash
from graphsilo.data.sources.bank import Bank
from graphsilo.data.sources.institutions import FIRST_DAY
from graphsilo.errors import ConfigError


@pytest.fixture(scope="module")
def made() -> Graph:
    return Bank.of({"transfers": 20_000, "banks": 5, "seed": 3}).generate()


def test_same_settings_same_tables(made: Graph) -> None:
    again = Bank.of({"transfers": 20_000, "banks": 5, "seed": 3}).generate()
    other = Bank.of({"transfers": 20_000, "banks": 5, "seed": 4}).generate()
    assert content_hash([again]) == content_hash([made]) != content_hash([other])


def test_as_many_accounts_and_rows_as_were_asked_for(made: Graph) -> None:
    assert made.types is not None
    assert made.links is not None
    assert made.types.names == ("account", "merchant")
    assert made.types.targets.sum() == 2000
    assert dict(zip(made.links.relations, np.bincount(made.links.of_link).tolist(), strict=True)) == {
        "transfer": 20_000, "payment": 5000
    }  # fmt: skip
    start, end = made.links.ends
    assert (start != end).all()


def test_only_accounts_have_labels_and_every_bank_has_mules(made: Graph) -> None:
    assert made.types is not None
    assert made.owners is not None
    assert (made.labels[~made.types.targets] == -1).all()
    assert (made.owners.of_node[~made.types.targets] == -1).all()
    mules = np.bincount(made.owners.of_node[made.labels == 1], minlength=5)
    assert mules.min() >= 1
    assert 0.01 < (made.labels == 1).sum() / (made.labels >= 0).sum() < 0.03


def test_rows_and_days_lie_within_the_year(made: Graph) -> None:
    assert made.links is not None
    assert made.links.time is not None
    assert made.time is not None
    assert made.types is not None
    for days in (made.links.time, made.time[made.types.targets]):
        assert days.min() >= FIRST_DAY
        assert days.max() <= FIRST_DAY + 365
    assert np.isnan(made.time[~made.types.targets]).all()


def test_no_column_of_an_account_decides(made: Graph) -> None:
    known = made.labels >= 0
    columns = np.asarray(made.features)[known]
    scores = [auc(column.astype(np.float64), made.labels[known] == 1) or 0.5 for column in columns.T]
    assert max(max(score, 1 - score) for score in scores) < 0.85


def test_customers_of_two_banks_are_nodes_of_nobody() -> None:
    graph = Bank.of({"transfers": 10_000, "shared_customers": 0.3}).generate()
    assert graph.types is not None
    assert graph.links is not None
    assert graph.owners is not None
    customers = graph.types.of_node == graph.types.names.index("customer")
    person, account = graph.links.ends[:, graph.links.of_link == graph.links.relations.index("holds")]
    assert customers[person].all()
    assert (graph.owners.of_node[customers] == -1).all()
    one, other = graph.owners.of_node[account].reshape(-1, 2).T
    assert (one != other).all()


@pytest.mark.parametrize(
    ("setting", "value"), [("banks", 3), ("transfers", 10), ("positives", 0.5), ("months", 1), ("shared_customers", 1)]
)
def test_settings_out_of_range_are_refused(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"data\.{setting}"):
        Bank.of({setting: value})
