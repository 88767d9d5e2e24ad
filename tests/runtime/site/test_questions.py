"""What a coordinator that keeps to no script gets to know of silos that make secure sums with it: sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphsilo.errors import DisclosureError, FederationError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.service.run_over import run_over
from graphsilo.federation.client import EvaluateReply, EvaluateRequest
from graphsilo.federation.codec import decode
from graphsilo.methods.fedridge.messages import CountRequest, Statistics, StatisticsRequest
from kit.here import Here, Straight
from kit.questions import Questions
from kit.secure import lying
from kit.site_tables import write_tables


def statistics_request(asked: Any, weight: float = 1.0) -> StatisticsRequest:
    """FedRidge's, with class weights that move what silos answer as little as one likes."""
    recipe = asked.config.recipe("mean", 0, 2048)
    features = asked.schema.num_features
    weights = torch.full((1, asked.schema.num_classes), weight, dtype=torch.float64)
    return StatisticsRequest(
        kinds=["mean"], dim=2048, class_weights=weights, size=1.0, blocks={"mean": recipe.blocks(features, None)},
        constants={"mean": recipe.constant(features)},
    )  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path) -> Questions:
    return Questions(tmp_path)


# -- what was agreed at the opening ------------------------------------------------------------------------------------


def test_a_run_that_was_opened_with_secure_sums_gives_no_single_answer(asked: Questions) -> None:
    """The owners have written no policy: what was agreed holds all the same, for every step but the one agreed on."""
    asked.open()
    for step, message in (
        ("count", CountRequest()), ("statistics", statistics_request(asked)),
        ("evaluate", EvaluateRequest(views=["own"])),
    ):  # fmt: skip
        with pytest.raises(DisclosureError, match="opened with secure sums, in which nothing but sums is seen"):
            asked.call(0, step, message)
    asked.open("run-2", report="silos")
    with pytest.raises(DisclosureError, match="Statistics, which 'statistics' sends, would be seen by itself"):
        asked.call(0, "statistics", statistics_request(asked), "run-2")
    assert decode(asked.call(0, "evaluate", EvaluateRequest(views=["own"]), "run-2"), EvaluateReply).kinds
    asked.open("run-3", secure=False)
    assert decode(asked.call(0, "statistics", statistics_request(asked), "run-3"), Statistics).num_samples > 0


@pytest.mark.parametrize("other", [{"secure": False}, {"report": "silos"}])
def test_a_run_is_not_opened_again_with_other_words(asked: Questions, other: dict[str, Any]) -> None:
    asked.open()
    for answer in asked.open(**other):
        assert not answer["ok"]
        assert "was opened here with other words on what is seen of single silos" in answer["text"]
    asked.open()


# -- totals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            5000,
            r"it stands for 5\d\d\d items .EvaluateSums.counts.; 4 silos said before round 1 that they hold \d+ at",
        ),
        (-5000, r"it stands for -\d+ items .EvaluateSums.counts."),
    ],
)
def test_totals_are_held_against_the_cards(
    more: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four moves its whole numbers: class counts come first, from which all silos learn what is rare."""
    lying(monkeypatch, lambda kind, behind: more if kind == "counts" and not behind else 0)
    sites = {}
    for client in range(4):
        file = write_tables(tmp_path / f"data{client}", f"silo{client}", client)
        sites[f"silo{client}"] = Here(f"silo{client}", [(client, file)], tmp_path / f"site{client}")
        sites[f"silo{client}"].start()
    config = load_config(overrides={
        "method.name": "fedavg", "run.secure_sums": True, "evaluation.report": "federation", "run.references": [],
    })  # fmt: skip
    with pytest.raises(FederationError, match=words) as caught:
        run_over(
            Straight(sites), config, name="drawn", clients={f"silo{client}": [client] for client in range(4)},
            out=tmp_path / "out", wait=30,
        )  # fmt: skip
    assert "nobody is named" in str(caught.value)
