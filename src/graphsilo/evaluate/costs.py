"""What tables show of a run that is no score of its model: what it cost, and when it reached a target.

Nothing selects by these numbers or records them under their names.
"""

from __future__ import annotations

from graphsilo.evaluate.metrics import METRICS, Metric, accuracy


def make_unlisted(name: str) -> Metric:
    """A cost, or what is shown of a name that is in no table: a plain number."""
    known = COURSE.get(name) or COSTS.get(name)
    return known or _number(name, name.replace("_", " ").capitalize(), "not in the table of metrics")


def has_direction(name: str) -> bool:
    """Whether it is known if more of a metric is better: not of one's own that nobody made known in this session."""
    name = name.rpartition(".")[2]
    return name in METRICS or name in COURSE or name in COSTS


def _number(name: str, title: str, meaning: str, *, more_is_better: bool = True) -> Metric:
    return Metric(name, title, meaning, counts=accuracy, is_share=False, higher_is_better=more_is_better)


COURSE = {
    name: _number(name, title, meaning, more_is_better=False)
    for name, title, meaning in (
        ("bytes_to_target", "Bytes to target", "sent and received until validation accuracy is at the target"),
        ("rounds_to_target", "Rounds to target", "rounds until validation accuracy is at the target"),
    )
}  # fmt: skip
"""What is read off a run's rounds, for a target."""
COSTS = {
    name: _number(name, title, meaning, more_is_better=False)
    for name, title, meaning in (
        ("bytes_sent", "Bytes", "sent and received by all clients in training"),
        ("values_sent", "Values sent", "by a client in a round, four bytes each"),
        ("parameters", "Parameters", "that a client trains, mean over clients by nodes"),
        ("training_seconds", "Seconds", "that training took, on the machine that it ran on"),
        ("distance_local", "Distance, cut", "of mean neighbours' features in the cut graph to the intact one's"),
        ("distance_mended", "Distance, mended", "of mean neighbours' features in the mended graph to the intact one's"),
    )
}
"""What a whole run cost, and what its clients noted of their graphs."""
