"""Scores that papers print, and which of them may stand beside a run.

Data, cutting rule, clients, scenario, method and metric must be the same. The cuts themselves are not known, so that a
point or two of difference is one of cuts.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.storage.records import RunRecord

NOTE = "The papers' cuts and splits are not known: a difference of a point or two is one of cuts."
NOTES = {
    "FedLoG": "The paper's cuts are not known, and scores of unseen data differ by tens of points between cuts. It "
    "prints class counts of three clients in the closed set on Cora, PubMed and Computers: there `graphsilo reproduce "
    "fedlog` takes the cut whose counts are nearest, elsewhere the first that leaves no class untrained.",
}
"""What must be said of a paper instead."""

_SETTINGS: dict[str, tuple[str, str | None]] = {
    "seen graph (closed set)": ("unseen", None),
    "unseen node (closed set)": ("unseen", "unseen_node"),
    "missing class (closed set)": ("unseen", "missing_class"),
    "new client": ("unseen", "new_client"),
    "unseen node (open set)": ("open", "unseen_node"),
}
"""What the papers call a setting: the scenario, and which of its test items."""
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
        model: As ``model.name``; empty of a method that has none.
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
    """A score as a paper prints it, a share where it is printed in percent.

    Attributes:
        paper, table: Where.
        data: As named in the catalog.
        partition: As the paper says it.
        rounds: Of communication; None where it is not said.
        setting: The paper's words, empty where it has one.
        method: The paper's name of it.
        std: None where none is printed.
        model: Its backbone, in this package's words: that of the row in which it is run again, else of its table.
        view: ``VIEW`` that it is of, where that is not what the method reports first.
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
    model: str = "gcn"
    view: str = ""

    @property
    def source(self) -> str:
        """``FairFGL, table II``."""
        return f"{self.paper}, table {self.table}"

    @property
    def question(self) -> Question | None:
        """In this package's words; None for a method that it does not have, and for what cannot be compared."""
        name = methods().get(self.method)
        if name is None or self.metric in NOT_COMPARED or self.setting.startswith("batch size"):
            return None
        rule = self.partition
        if self.partition.startswith("dirichlet"):
            rule = f"dirichlet {float(self.partition.removeprefix('dirichlet')):g}"
        elif self.setting.startswith("dir"):
            rule = f"dirichlet {float(self.setting.removeprefix('dir')):g}"
        elif self.setting == "iid":
            rule = "random"
        scenario, items = _SETTINGS.get(self.setting, ("seen", None))
        return Question(self.data, rule, self.clients, scenario, items, self.view, self.metric, name, self.model)


@cache
def load_scores() -> tuple[Printed, ...]:
    """Every published score."""
    text = resources.files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        Printed(
            row["paper"], row["table"], row["dataset"], row["partition"], int(row["clients"]),
            int(row["rounds"]) if row["rounds"] else None, row["setting"], row["metric"], row["method"],
            round(float(row["mean"]) / 100, 6), round(float(row["std"]) / 100, 6) if row["std"] else None,
            row["model"], row["view"],
        )
        for row in csv.DictReader(text.splitlines())
    )  # fmt: skip


@cache
def methods() -> Mapping[str, str]:
    """A paper's name of a method to this package's."""
    from graphsilo.experiments.reproduce.description import tree

    return {name: each["set"]["method.name"] for name, each in tree("tables")["methods"].items()} | {
        "FedSage": "fedsage", "GlobSage": "global",
    }  # fmt: skip


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
    model, scenario = (run.config.get(part, {}).get("name") or "" for part in ("model", "scenario"))
    return Question(
        run.data.name, rule, run.partition.clients, scenario or "seen", items, view, metric, run.method.name, model
    )


def select_scores(paper: str | None) -> tuple[Printed, ...]:
    """The scores of ``PAPER`` or ``PAPER/TABLE``; all of them where None is asked for.

    Raises:
        ConfigError: There is no such paper or table.
    """
    if paper is None:
        return load_scores()
    name, _, table = paper.partition("/")
    papers = dict.fromkeys(each.paper for each in load_scores())
    found = [each for each in load_scores() if key(each.paper) == key(name)]
    if not found:
        raise ConfigError(f"a paper with published scores was wanted, got '{name}': {nearest(name, papers)}")
    tables = dict.fromkeys(each.table for each in found)
    if table and table.lower() not in {each.lower() for each in tables}:
        raise ConfigError(f"a table of {found[0].paper} was wanted, got '{table}': {nearest(table, tables)}")
    return tuple(each for each in found if not table or each.table.lower() == table.lower())


def key(name: str) -> str:
    """A name without what people write differently: ``O-pFGL`` and ``opfgl`` are the same, ``FedSage+`` and
    ``fedsage_plus``, too."""
    return "".join(letter for letter in name.lower().replace("+", "plus") if letter.isalnum())


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
