"""A coordinator that has a silo's items counted again and again, under whatever name and question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from graphsilo import models
from graphsilo.data.silos.own import read_silo_file
from graphsilo.errors import DisclosureError
from graphsilo.federation import journal
from graphsilo.federation.client import EvaluateReply, EvaluateRequest, EvaluateSums, ScoreCounts
from graphsilo.federation.codec import decode
from graphsilo.federation.journal import Journal
from graphsilo.federation.registry import load
from graphsilo.methods.fedavg import TrainRequest
from kit.questions import Questions

MOST, IN_ALL = 3, 5
REFUSED = r"this silo answers 3 evaluations of the same data in a run \(policy.max_run_evaluations\)"
REFUSED_IN_ALL = r"5 evaluations of the same data in all runs together \(policy.max_total_evaluations\)"


@pytest.fixture
def asked(tmp_path: Path) -> Questions:
    """One silo with two classes and dates."""
    policy = {"max_run_evaluations": MOST, "max_total_evaluations": IN_ALL}
    asked = Questions(tmp_path, silos=1, method="fedavg", policy=policy)
    nodes = asked.files[0].with_name("nodes.csv")
    head, *rows = nodes.read_text().replace(",c1,", ",c0,").replace(",c2,", ",c0,").splitlines()
    days = np.datetime64("2024-01-01") + np.arange(len(rows))
    nodes.write_text("\n".join([f"{head},day", *(f"{row},{day}" for row, day in zip(rows, days, strict=True))]) + "\n")
    tables = asked.files[0].with_name("tables.yaml")
    said = {**yaml.safe_load(tables.read_text()), "classes": ["c0", "c3"]}
    said["nodes"]["time"] = "day"
    tables.write_text(yaml.safe_dump(said))
    asked.join()
    asked.schema = replace(asked.schema, class_names=("c0", "c3"), num_classes=2)
    assert asked.open(secure=False)[0]["ok"], asked.open(secure=False)
    return asked


def weights(asked: Questions) -> dict[str, torch.Tensor]:
    model = models.build(
        "gcn", num_features=asked.schema.num_features, num_classes=2, task="node",
        generator=torch.Generator().manual_seed(0), hidden=[8],
    )  # fmt: skip
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def request(shift: float = 0.0, periods: Any = ()) -> EvaluateRequest:
    """A table of scores whose calibrated bins are shifted by so much."""
    agreed = {"own": torch.tensor([1.0, 0.0, 1.0, shift, 0.0], dtype=torch.float64)}
    return EvaluateRequest(views=["own"], auc=True, rare=1, aim="f1", agreed=agreed, periods=list(periods))


def test_shifted_bins_and_days_are_answered_as_often_as_the_owner_says(asked: Questions) -> None:
    tables = [decode(asked.call(0, "evaluate", request(shift)), EvaluateReply).bins for shift in (0.0, 1e-3, 2e-3)]
    assert all(tables)
    for other in (request(3e-3), request(periods=[19723.0, 19800.0]), EvaluateRequest(views=["own"])):
        with pytest.raises(DisclosureError, match=REFUSED):
            asked.call(0, "evaluate", other)
    with pytest.raises(DisclosureError, match=REFUSED):
        asked.call(0, "evaluate_bins", request())
    asked.call(0, "train", TrainRequest(weights=weights(asked)))  # is no evaluation


def test_a_refusal_is_a_bit_and_counts_as_an_answer(asked: Questions) -> None:
    """A coordinator that moves a threshold until a table is refused has learned where an item lies."""
    file = asked.files[0]
    said = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**said, "policy": {**said["policy"], "min_evaluation_count": 10**6}}))
    asked.join()
    asked.open(secure=False)
    for shift in (0.0, 0.0, 1.0, 2.0):  # asked for again it says nothing new
        with pytest.raises(DisclosureError, match=r"fewer items than its policy.min_evaluation_count"):
            asked.call(0, "evaluate", request(shift))
    with pytest.raises(DisclosureError, match=REFUSED):
        asked.call(0, "evaluate", request(3.0))


def test_a_run_by_another_name_or_kit_begins_at_what_all_have_had(asked: Questions) -> None:
    for shift in range(MOST):
        asked.call(0, "evaluate", request(float(shift)))
    assert asked.open("run-2", secure=False)[0]["ok"]
    decode(asked.call(0, "evaluate_bins", request(), "run-2"), ScoreCounts)
    asked.join("other-kit")
    for shift, run in enumerate(("run-1", "run-3", "run-4")):
        assert asked.open(run, secure=False)[0]["ok"]
        if shift:
            with pytest.raises(DisclosureError, match=REFUSED_IN_ALL):
                asked.call(0, "evaluate", request(), run)
        else:
            with pytest.raises(DisclosureError, match=REFUSED):  # the same name in another federation
                asked.call(0, "evaluate", request(7.0), run)
            asked.open("run-2", secure=False)
            asked.call(0, "evaluate", request(8.0), "run-2")


def test_a_run_that_is_opened_again_gets_the_same_answers_and_no_others(asked: Questions) -> None:
    """From the beginning, or from a checkpoint; after the very same questions, and not after others."""
    mark = {"run": "run-1", "seed": 0, "mark": "seed0-round1"}
    train, evaluate = TrainRequest(weights=weights(asked)), request()

    def go() -> bytes:
        asked.call(0, "train", train, round=1)
        return asked.call(0, "evaluate", evaluate, round=1)

    first = go()
    assert asked.ask(0, {"do": "save", **mark}).header["ok"]
    second = asked.call(0, "evaluate", evaluate, round=2)
    for _ in range(5):
        asked.join()
        assert asked.open(secure=False)[0]["ok"]
        assert go() == first
        asked.join()
        assert asked.open(secure=False, mark="seed0-round1")[0]["ok"]
        assert asked.call(0, "evaluate", evaluate, round=2) == second
    asked.open(secure=False)
    asked.call(0, "evaluate", evaluate, round=1)  # the third: of who was not trained
    with pytest.raises(DisclosureError, match=REFUSED):
        asked.call(0, "evaluate", request(1e-3), round=1)
    # Whether two models are counted alike is a bit that is not answered as often as one likes.
    asked.call(0, "train", TrainRequest(weights={name: weight * 2 for name, weight in weights(asked).items()}), round=1)
    with pytest.raises(DisclosureError, match=REFUSED):
        asked.call(0, "evaluate", evaluate, round=1)


def test_a_silo_that_is_killed_between_its_record_and_the_answer(
    asked: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has left and one is counted: the same is answered afterwards, and others are fewer."""

    written = Journal._write

    def die(self: Journal, way: Any, *args: Any) -> None:
        if way == "sent":
            raise KeyboardInterrupt
        written(self, way, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_write", die)
        with pytest.raises(KeyboardInterrupt):
            asked.call(0, "evaluate", request())
    record = read_silo_file(asked.files[0]).record("evaluated")
    assert len(record.read_text().splitlines()) == 1
    asked.join()
    asked.open(secure=False)
    for shift in (0.0, 1.0, 0.0, 2.0):
        asked.call(0, "evaluate", request(shift))
    with pytest.raises(DisclosureError, match=REFUSED):
        asked.call(0, "evaluate", request(3.0))


def test_a_damaged_record_answers_nothing_and_both_sides_know(asked: Questions, tmp_path: Path) -> None:
    asked.call(0, "evaluate", request())
    record = read_silo_file(asked.files[0]).record("evaluated")
    record.write_text("{" + record.read_text())
    asked.join()
    said = asked.open(secure=False)[0]
    assert "the record of evaluations" in said["refused"][0][1]
    for entry in (
        entry for entry in journal.read(tmp_path / "site0" / "sent" / "silo0.jsonl") if entry.way == "refused"
    ):
        assert "The silo's owner must mend it, or remove it" in entry.reason


def test_a_run_that_says_it_wants_more_is_refused_before_it_begins(asked: Questions) -> None:
    said = asked.open("run-2", secure=False, evaluations=4)[0]
    assert "this run may ask for up to 4 of them" in said["refused"][0][1]
    assert asked.open("run-2", secure=False, evaluations=3)[0]["clients"] == [0]


def test_other_rows_are_other_data(asked: Questions) -> None:
    for shift in range(MOST):
        asked.call(0, "evaluate", request(float(shift)))
    table = asked.files[0].with_name("nodes.csv")
    table.write_text(table.read_text().replace("2024-01-01", "2024-01-02"))
    asked.join()
    asked.open(secure=False)
    asked.call(0, "evaluate", request(9.0))


def test_masked_answers_count_as_offers_do(tmp_path: Path) -> None:
    asked = Questions(tmp_path, silos=3, method="fedavg", policy={"max_run_evaluations": 2, "max_total_evaluations": 3})
    asked.config = load("fedavg").config()
    asked.open()
    wanted = EvaluateRequest(views=["own"])
    for number in (1, 2):
        total = asked.sum("evaluate_sums", wanted, EvaluateSums, range(3), round=number)
        assert total.counts
    asked.sum("evaluate_sums", wanted, EvaluateSums, range(3), round=2)  # offered twice, and counted once
    with pytest.raises(DisclosureError, match=r"2 evaluations of the same data in a run"):
        asked.sum("evaluate_sums", wanted, EvaluateSums, range(3), round=3)
