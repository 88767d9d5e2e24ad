"""Scores that papers print, and which of them may stand beside a run.

Data, cutting rule, clients, scenario, method and metric must be the same. The cuts themselves are not known, so that a
point or two of difference is one of cuts.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage.records import RunRecord
from graphsilo.federation.registry import plain_name

NOTE = "The papers' cuts and splits are not known: a difference of a point or two is one of cuts."
NOTES = {
    "FedLoG": "The paper's cuts are not known, and scores of unseen data differ by tens of points between cuts. It "
    "prints class counts of three clients in the closed set on Cora, PubMed and Computers: there `graphsilo reproduce "
    "fedlog` takes the cut whose counts are nearest, elsewhere the first that leaves no class untrained.",
}
"""What must be said of a paper instead."""

ASSUMED = {"FairFGL": "10 clients", "FedPG": "100 rounds", "FedSage+": "Louvain"}
"""What a paper does not say of its protocol, and is taken here."""
AS_REPORTED = ("own_local", "aggregate_local", "own_global")
"""Modes that a paper means when it names none, if they are of the view that the method reports first."""
NOT_COMPARED = ("min_f1", "hete_min_f1")
"""Metrics whose printed values follow no definition that could be found."""
_WEIGHTS = {
    "data": 8, "scenario": 4, "rule": 3, "clients": 3, "metric": 2, "items": 2, "model": 1, "view": 1, "method": 1,
}  # fmt: skip
"""What makes questions alike."""


@dataclass(frozen=True)
class Question:
    """What a score is a score of, whoever reports it.

    Attributes:
        data: Name of the data set.
        rule: Cutting rule; of collections also its alpha, ``dirichlet 0.3``.
        clients: How many.
        scenario: As ``scenario.name``.
        items: Kind of test items of the scenario; None is the main one.
        view: ``VIEW`` of the score; empty is what a method reports first.
        metric: As in the table of metrics.
        method: As ``method.name``.
        model: As ``model.name`` or the name of a ``model.pool``; empty of a method that has none.
    """

    data: str
    rule: str
    clients: int
    scenario: str
    items: str | None
    view: str
    metric: str
    method: str
    model: str

    @property
    def place(self) -> str:
        """``Cora, metis, 10 clients, gcn``."""
        scenario = "" if self.scenario == "seen" else f"scenario {self.scenario}"
        parts = [self.data, self.rule, f"{self.clients} clients", scenario, self.model, self.view]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Printed:
    """A score as a paper prints it: a share where it is printed in percent, else in bytes, seconds or ones.

    Attributes:
        paper, table: Where.
        data: As named in the catalog.
        partition: As the paper says it.
        rounds: Of communication; None where it is not said.
        setting: The paper's words, empty where it has one.
        method: The paper's name of it.
        std: None where none is printed.
        question: In this package's words, as the row says in which it is run again; None where no run but that one can
            be held against it.
    """

    paper: str
    table: str
    data: str
    partition: str
    clients: int
    rounds: int | None
    setting: str
    metric: str
    method: str
    mean: float
    std: float | None
    question: Question | None = None

    @property
    def source(self) -> str:
        """``FairFGL, table II``."""
        return f"{self.paper}, table {self.table}"


@cache
def load_scores() -> tuple[Printed, ...]:
    """Every published score, with its question."""
    from graphsilo.experiments.reproduce.description import questions

    known = questions()
    return tuple(replace(each, question=known.get(each)) for each in read_scores())


@cache
def read_scores() -> tuple[Printed, ...]:
    """The same as they stand in the file, without questions."""
    text = resources.files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        factor = metric_of(row["metric"]).factor
        found.append(Printed(
            row["paper"], row["table"], row["dataset"], row["partition"], int(row["clients"]),
            int(row["rounds"]) if row["rounds"] else None, row["setting"], row["metric"], row["method"],
            round(float(row["mean"]) / factor, 6), round(float(row["std"]) / factor, 6) if row["std"] else None,
        ))  # fmt: skip
    return tuple(found)


def question_of(run: RunRecord, metric: str, view: str = "", items: str | None = None) -> Question:
    """What a run's score is a score of.

    Args:
        run: The run's result.
        metric: The metric's name.
        view: Empty for what the method reports first.
        items: Kind of test items.
    """
    alpha = run.config.get("partition", {}).get("alpha")
    rule = run.partition.rule if alpha is None else f"{run.partition.rule} {float(alpha):g}"
    model, scenario = (run.config.get(part, {}) for part in ("model", "scenario"))
    backbone = str(model.get("pool") or model.get("name") or "")
    return Question(
        run.data.name, rule, run.partition.clients, scenario.get("name") or "seen", items, view, metric,
        run.method.name, backbone,
    )  # fmt: skip


def name_view(mode: str, first: str) -> str:
    """``VIEW`` of a question: empty for a mode of the view that the method reports first."""
    return "" if mode in AS_REPORTED and mode.startswith(first) else mode


def select_scores(paper: str | None) -> tuple[Printed, ...]:
    """The scores of ``PAPER`` or ``PAPER/TABLE``; all of them where None is asked for.

    Raises:
        ConfigError: There is no such paper or table.
    """
    if paper is None:
        return load_scores()
    name, _, table = paper.partition("/")
    papers = dict.fromkeys(each.paper for each in load_scores())
    found = [each for each in load_scores() if plain_name(each.paper) == plain_name(name)]
    if not found:
        raise ConfigError(f"a paper with published scores was wanted, got '{name}': {nearest(name, papers)}")
    tables = dict.fromkeys(each.table for each in found)
    if table and table.lower() not in {each.lower() for each in tables}:
        raise ConfigError(f"a table of {found[0].paper} was wanted, got '{table}': {nearest(table, tables)}")
    return tuple(each for each in found if not table or each.table.lower() == table.lower())


def match_scores(
    asked: Iterable[tuple[Question, int]], among: Iterable[Printed]
) -> dict[tuple[Question, int], Printed]:
    """The published score of each question that is asked of a run with so many rounds, all from one paper.

    It is the paper that has most of them; of equals that whose rounds are nearer, then the first in the order of the
    file. Where a paper answers a question several times, after one round and after a hundred, the score counts whose
    rounds are nearest to the run's by their ratio; of equals the first.
    """
    wanted = list(dict.fromkeys(asked))
    questions = {question for question, _ in wanted}
    by_paper: dict[str, dict[Question, list[Printed]]] = {}
    for each in among:
        question = each.question
        if question in questions and question is not None:
            by_paper.setdefault(each.paper, {}).setdefault(question, []).append(each)
    found = [
        {(question, rounds): min(known[question], key=lambda one: _distance(one, rounds))
         for question, rounds in wanted if question in known}
        for known in by_paper.values()
    ]  # fmt: skip
    return max(
        found, key=lambda one: (len(one), -sum(_distance(each, asked) for (_, asked), each in one.items())), default={}
    )


def _distance(printed: Printed, rounds: int) -> float:
    """How far published rounds are from a run's: the size of the logarithm of their ratio."""
    return math.inf if printed.rounds is None else abs(math.log(printed.rounds / max(rounds, 1)))


def describe_closest(questions: Iterable[Question], among: Iterable[Printed]) -> str:
    """Where nothing matches: what is published of the most similar, as a sentence."""
    asked = list(questions)

    def likeness(one: Printed) -> int:
        mine = one.question
        return max(
            sum(weight for name, weight in _WEIGHTS.items() if getattr(mine, name) == getattr(each, name))
            for each in asked
        )

    known = [each for each in among if each.question is not None]
    if not asked or not known:
        return "There is no published score to hold these runs against."
    best = max(known, key=likeness)
    alike = [
        each
        for each in known
        if (each.paper, each.table, each.data, each.setting, each.clients, each.metric)
        == (best.paper, best.table, best.data, best.setting, best.clients, best.metric)
    ]
    question = best.question
    assert question is not None
    names = dict.fromkeys(each.method for each in alike)
    setting = f", {best.setting}" if best.setting else ""
    return (
        f"No published score is of {asked[0].place}, {asked[0].metric} of these methods. Nearest: {best.source}, "
        f"{question.place}{setting}, {best.metric} of {', '.join(names)}."
    )
