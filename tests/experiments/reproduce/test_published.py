"""The published scores that come with the package."""

from __future__ import annotations

from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.reproduce.published import methods, printed
from graphsilo.federation import registry


def test_every_score_is_a_share_of_a_metric_and_names_its_place() -> None:
    assert len(printed()) > 1000
    for each in printed():
        assert 0 <= each.mean < 1
        assert each.std is None or 0 <= each.std < 0.3
        assert each.metric in METRICS
        assert each.clients > 0


def test_values_as_they_are_printed() -> None:
    def value(paper: str, table: str, data: str, method: str, metric: str = "accuracy") -> float:
        [found] = [
            each.mean
            for each in printed()
            if (each.paper, each.table, each.data, each.method, each.metric) == (paper, table, data, method, metric)
        ]
        return found

    assert value("FairFGL", "II", "Cora", "FedAvg") == 0.8113
    assert value("O-pFGL", "1", "Cora", "FedAvg", "macro_f1") == 0.451
    assert value("FedSage+", "D2", "CS", "FedSage+") == 0.9414


def test_methods_have_a_name_here() -> None:
    assert set(methods().values()) <= {each.name for each in registry.listings()}


def test_a_collections_cut_is_in_its_setting() -> None:
    rules = {each.setting: each.question.rule for each in printed() if each.table == "VIII" and each.question}
    assert rules == {"dir0.3": "dirichlet 0.3", "dir0.5": "dirichlet 0.5", "dir1": "dirichlet 1", "iid": "random"}
