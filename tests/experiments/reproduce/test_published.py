"""The published scores that come with the package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphsilo.evaluate.costs import COSTS, COURSE
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.reproduce import description, published
from graphsilo.experiments.reproduce.published import Printed, Question, load_scores, match_scores
from graphsilo.federation import registry


def test_every_score_is_a_share_of_a_metric_and_names_its_place() -> None:
    assert len(load_scores()) > 2300
    assert len({each.source + repr(each)[: repr(each).index("mean=")] for each in load_scores()}) == len(load_scores())
    for each in load_scores():
        if each.metric in METRICS:
            assert 0 <= each.mean < 1
            assert each.std is None or 0 <= each.std < 0.3
        else:
            assert each.metric in {*COSTS, *COURSE, "parameters", "average_rank"}
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
    assert value("FedPG", "VII", "Physics", "SCAFFOLD", "values_sent") == 1_076_000  # printed in thousands
    assert value("FedLoG", "5", "Cora", "FedAvg", "bytes_sent") == 393_110_000  # in MB


def test_papers_spell_methods_as_they_like() -> None:
    by_name = {(each.paper, each.method): each.question for each in load_scores() if each.question}
    for paper, name, method in (
        ("FairFGL", "Scaffold", "scaffold"),
        ("FedPG", "SCAFFOLD", "scaffold"),
        ("O-pFGL", "Co-Boost", "co_boosting"),
        ("O-pFGL", "Standalone", "local"),
        ("FedPG", "GCFL+", "gcfl_plus"),
    ):
        assert by_name[paper, name].method == method


def test_a_collections_cut_is_in_its_setting() -> None:
    rules = {each.setting: each.question.rule for each in load_scores() if each.table == "VIII" and each.question}
    assert rules == {"dir0.3": "dirichlet 0.3", "dir0.5": "dirichlet 0.5", "dir1": "dirichlet 1", "iid": "random"}


# -- several scores of one question ------------------------------------------------------------------------------------

QUESTION = Question("Cora", "louvain+", 10, "seen", None, "", "accuracy", "fedavg", "gcn")
ONE = Printed("O-pFGL", "1", "Cora", "louvain+", 10, 1, "", "accuracy", "FedAvg", 0.69, None, QUESTION)
HUNDRED = replace(ONE, table="8", rounds=100, mean=0.75)
UNSAID = replace(ONE, table="9", rounds=None, mean=0.5)
ELSEWHERE = replace(ONE, paper="FairFGL", table="II", rounds=40, mean=0.8)


@pytest.mark.parametrize("order", [(UNSAID, ONE, HUNDRED), (HUNDRED, ONE, UNSAID)])
@pytest.mark.parametrize(
    ("rounds", "wanted"), [(1, ONE), (2, ONE), (9, ONE), (11, HUNDRED), (100, HUNDRED), (500, HUNDRED)]
)
def test_rounds_that_are_nearest_by_ratio(order: tuple[Printed, ...], rounds: int, wanted: Printed) -> None:
    # √(1 · 100) = 10 is as far from one as from the other; by difference 11 would be nearer to 1
    assert match_scores([(QUESTION, rounds)], order) == {(QUESTION, rounds): wanted}


def test_each_run_has_the_score_of_its_rounds() -> None:
    found = match_scores([(QUESTION, 100), (QUESTION, 2)], [ONE, HUNDRED])
    assert found == {(QUESTION, 100): HUNDRED, (QUESTION, 2): ONE}


def test_what_says_no_rounds_is_better_than_nothing() -> None:
    assert match_scores([(QUESTION, 100)], [UNSAID]) == {(QUESTION, 100): UNSAID}


def test_the_paper_with_most_scores_is_taken_and_of_equals_the_nearer_one() -> None:
    other = replace(QUESTION, method="fedgta")
    assert match_scores([(QUESTION, 50)], [ONE, ELSEWHERE]) == {(QUESTION, 50): ELSEWHERE}
    assert match_scores([(QUESTION, 2)], [ELSEWHERE, ONE]) == {(QUESTION, 2): ONE}
    both = [ELSEWHERE, ONE, replace(ONE, method="FedGTA", question=other)]
    assert match_scores([(QUESTION, 50), (other, 50)], both) == {(QUESTION, 50): ONE, (other, 50): both[2]}


OTHER = {
    "data": "PubMed", "scenario": "unseen", "rule": "metis", "clients": 3, "metric": "macro_f1", "method": "fedgta",
}  # fmt: skip


@pytest.mark.parametrize(
    ("near", "far"),
    [(["method"], "metric"), (["metric"], "clients"), (["metric"], "rule"), (["clients"], "scenario"),
     (["rule"], "scenario"), (["scenario", "rule"], "data")],
)  # fmt: skip
def test_the_closest_score_differs_in_what_matters_least(near: list[str], far: str) -> None:
    among = [
        replace(ONE, table=table, question=replace(QUESTION, **{name: OTHER[name] for name in names}))  # type: ignore[arg-type]
        for table, names in (("far", [far]), ("near", near))  # of equals the first would be named
    ]
    said = published.describe_closest([QUESTION], among)
    assert said.startswith("No published score is of Cora, louvain+, 10 clients, gcn, accuracy of these methods.")
    assert "Nearest: O-pFGL, table near, " in said


def test_a_question_is_that_of_the_row_in_which_the_score_is_run_again() -> None:
    usual = {each.name: RunConfig.of({"method": each.name}).model.name for each in registry.listings()}
    known = description.questions()
    for line in (line for table in description.tables() for row in table.rows for line in row.lines):
        for question in filter(None, map(known.get, line.printed.values() if line.is_default else ())):
            pool = line.settings.get("model.pool")
            assert question.model == (pool or line.settings.get("model.name") or usual[question.method])
    of_tables = {each.question for each in load_scores() if (each.paper, each.table) == ("O-pFGL", "19")}
    assert {each.model for each in of_tables if each} == {"gat", "sage", "sgc"}


def test_what_a_sweep_or_ablation_prints_is_no_score_of_a_run_by_default() -> None:
    for each in load_scores():
        if each.table in ("IV", "X", "22", "D3") or "with" in each.method:
            assert each.question is None, each


def test_fedlogs_note_says_of_which_cuts_counts_are_printed() -> None:
    note = published.NOTES["FedLoG"]
    assert "three clients in the closed set on Cora, PubMed and Computers" in note
    assert "elsewhere the first that leaves no class untrained" in note
