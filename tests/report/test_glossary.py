"""Words that a page explains."""

from __future__ import annotations

from graphsilo.evaluate.metrics import METRICS
from graphsilo.report.glossary import TERMS, explain_terms


def test_every_main_metric_is_explained_under_its_own_title() -> None:
    main = {name: each.title for name, each in METRICS.items() if each.is_main}
    assert main.items() <= {key: word for key, (word, _) in TERMS.items()}.items()


def test_words_stand_in_one_order_and_unknown_ones_are_left_out() -> None:
    assert list(explain_terms(["gap", "accuracy", "nothing"])) == ["accuracy", "gap"]
