"""Published scores beside runs: which paper's, and what must be said of them."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.experiments.reproduce.published import (
    ASSUMED,
    NOTE,
    NOTES,
    Printed,
    Question,
    describe_closest,
    match_scores,
    name_view,
    question_of,
    select_scores,
)
from graphsilo.report.formats import join_words
from graphsilo.report.record import Run
from graphsilo.report.tables import Publisher
from graphsilo.report.views import Column


def publisher(runs: Sequence[Run], shown: Sequence[Column], paper: str | None) -> tuple[Publisher, tuple[str, ...]]:
    """Who finds a published score for a run, and sentences on where they are from.

    All scores are one paper's: that which prints most of them; where it prints one after several numbers of rounds,
    that which is nearest to the run's.

    Args:
        runs: All that are compared.
        shown: All columns.
        paper: ``PAPER`` or ``PAPER/TABLE``; None takes the one with the most scores.

    Raises:
        ConfigError: There is no such paper or table.
    """
    among = select_scores(paper)
    asked = [_question_and_rounds(run, column) for run in runs for column in shown]
    found = match_scores(asked, among)
    known = {each.question: each for each in found.values()}
    others = dict.fromkeys(each.paper for each in among if each.question in known)

    def find(run: Run, label: str, column: Column) -> Printed | None:
        return found.get(_question_and_rounds(run, column))

    if not found:
        return find, (describe_closest([question for question, _ in asked], among),)
    also = [name for name in others if name != next(iter(found.values())).paper]
    more = [f"{join_words(also)} print{'s' if len(also) == 1 else ''} some of them, too: name the paper to see those."]
    return find, (*sources(list(found.values()), runs), *(more if also else []))


def sources(found: Sequence[Printed], runs: Sequence[Run]) -> tuple[str, ...]:
    """Where published scores are from; and of these runs, in what their protocol is known to differ."""
    numbers = sorted({each.table for each in found}, key=[each.table for each in found].index)
    paper = found[0].paper
    said = [
        f"Published: {paper}, table{'s' if len(numbers) > 1 else ''} {join_words(numbers)}. {NOTES.get(paper, NOTE)}"
    ]
    said += assumptions(paper)
    theirs = sorted({each.rounds for each in found if each.rounds is not None})
    ours = sorted({run.result.method.rounds for run in runs})
    if ours and theirs and theirs != ours:
        many = "" if theirs == [1] else "s"
        said.append(
            f"Published with {join_words(map(str, theirs))} round{many}; these runs have {join_words(map(str, ours))}."
        )
    return tuple(said)


def assumptions(paper: str) -> list[str]:
    """What of a paper's protocol it does not say, as a sentence; none where it says all."""
    return [f"Assumed, as the paper does not say it: {ASSUMED[paper]}."] if paper in ASSUMED else []


def _question_and_rounds(run: Run, column: Column) -> tuple[Question, int]:
    """What a score is asked for, and the run's rounds."""
    return _question(run, column), run.result.method.rounds


def _question(run: Run, column: Column) -> Question:
    """What a run's score in a column is a score of."""
    shown = column.mode or run.reported
    view = name_view(shown, run.result.method.evaluates[0])
    if column.average is not None:
        view = column.view
    return question_of(run.result, column.metric, view, column.items)
