"""The published scores that come with the package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.reproduce import description, published
from graphsilo.experiments.reproduce.published import Printed, load_scores, match_scores, methods
from graphsilo.federation import registry


def test_every_score_is_a_share_of_a_metric_and_names_its_place() -> None:
    assert len(load_scores()) > 1000
    for each in load_scores():
        assert 0 <= each.mean < 1
        assert each.std is None or 0 <= each.std < 0.3
        assert each.metric in METRICS
        assert each.clients > 0


def test_values_as_they_are_printed() -> None:
    def value(paper: str, table: str, data: str, method: str, metric: str = "accuracy") -> float:
        [found] = [
            each.mean
            for each in load_scores()
            if (each.paper, each.table, each.data, each.method, each.metric) == (paper, table, data, method, metric)
        ]
        return found

    assert value("FairFGL", "II", "Cora", "FedAvg") == 0.8113
    assert value("O-pFGL", "1", "Cora", "FedAvg", "macro_f1") == 0.451
    assert value("FedSage+", "D2", "CS", "FedSage+") == 0.9414


def test_methods_have_a_name_here() -> None:
    assert set(methods().values()) <= {each.name for each in registry.listings()}


def test_a_collections_cut_is_in_its_setting() -> None:
    rules = {each.setting: each.question.rule for each in load_scores() if each.table == "VIII" and each.question}
    assert rules == {"dir0.3": "dirichlet 0.3", "dir0.5": "dirichlet 0.5", "dir1": "dirichlet 1", "iid": "random"}


# -- several scores of one question ------------------------------------------------------------------------------------

ONE = Printed("O-pFGL", "1", "Cora", "louvain+", 10, 1, "", "accuracy", "FedAvg", 0.69, None)
QUESTION = ONE.question
HUNDRED = replace(ONE, table="8", rounds=100, mean=0.75)
UNSAID = replace(ONE, table="9", rounds=None, mean=0.5)
ELSEWHERE = replace(ONE, paper="FairFGL", table="II", rounds=40, mean=0.8)


@pytest.mark.parametrize("order", [(UNSAID, ONE, HUNDRED), (HUNDRED, ONE, UNSAID)])
@pytest.mark.parametrize(
    ("rounds", "wanted"), [(1, ONE), (2, ONE), (9, ONE), (11, HUNDRED), (100, HUNDRED), (500, HUNDRED)]
)
def test_rounds_that_are_nearest_by_ratio(order: tuple[Printed, ...], rounds: int, wanted: Printed) -> None:
    # √(1 · 100) = 10 is as far from one as from the other; by difference 11 would be nearer to 1
    assert QUESTION is not None
    assert match_scores([(QUESTION, rounds)], order) == {(QUESTION, rounds): wanted}


def test_each_run_has_the_score_of_its_rounds() -> None:
    assert QUESTION is not None
    found = match_scores([(QUESTION, 100), (QUESTION, 2)], [ONE, HUNDRED])
    assert found == {(QUESTION, 100): HUNDRED, (QUESTION, 2): ONE}


def test_what_says_no_rounds_is_better_than_nothing() -> None:
    assert QUESTION is not None
    assert match_scores([(QUESTION, 100)], [UNSAID]) == {(QUESTION, 100): UNSAID}


def test_the_paper_with_most_scores_is_taken_and_of_equals_the_nearer_one() -> None:
    other = replace(ONE, method="FedGTA").question
    assert QUESTION is not None
    assert other is not None
    assert match_scores([(QUESTION, 50)], [ONE, ELSEWHERE]) == {(QUESTION, 50): ELSEWHERE}
    assert match_scores([(QUESTION, 2)], [ELSEWHERE, ONE]) == {(QUESTION, 2): ONE}
    both = [ELSEWHERE, ONE, replace(ONE, method="FedGTA")]
    assert match_scores([(QUESTION, 50), (other, 50)], both) == {(QUESTION, 50): ONE, (other, 50): both[2]}


OTHER = {
    "data": "PubMed", "setting": "seen graph (closed set)", "partition": "metis", "clients": 3, "metric": "macro_f1",
    "method": "FedGTA",
}  # fmt: skip


@pytest.mark.parametrize(
    ("near", "far"),
    [(["method"], "metric"), (["metric"], "clients"), (["metric"], "partition"), (["clients"], "setting"),
     (["partition"], "setting"), (["setting", "partition"], "data")],
)  # fmt: skip
def test_the_closest_score_differs_in_what_matters_least(near: list[str], far: str) -> None:
    assert QUESTION is not None
    among = [
        replace(ONE, table=table, **{name: OTHER[name] for name in names})  # type: ignore[arg-type]
        for table, names in (("far", [far]), ("near", near))  # of equals the first would be named
    ]
    said = published.describe_closest([QUESTION], among)
    assert said.startswith("No published score is of Cora, louvain+, 10 clients, gcn, accuracy of these methods.")
    assert "Nearest: O-pFGL, table near, " in said


def test_backbones_and_views_are_those_of_the_rows_in_which_scores_are_run_again() -> None:
    usual = {each.name: RunConfig.of({"method": each.name}).model.name for each in registry.listings()}
    for table in description.tables():
        views = [each.get("views", {}) for each in description.tree("tables")["tables"] if each["title"] == table.title]
        for line in (line for row in table.rows for line in row.lines if line.is_default):
            for score in filter(lambda score: score.question, line.printed.values()):
                assert score.model == (line.settings.get("model.name") or usual[line.settings["method.name"]])
                if view := (views[0] if views else {}).get(score.method):
                    assert score.view == f"{view}_local"


def test_fedlogs_note_says_of_which_cuts_counts_are_printed() -> None:
    note = published.NOTES["FedLoG"]
    assert "three clients in the closed set on Cora, PubMed and Computers" in note
    assert "elsewhere the first that leaves no class untrained" in note
