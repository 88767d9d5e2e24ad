"""Robust averages by hand: which of some numbers counts, and how often."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphsilo.errors import FederationError
from graphsilo.federation import accumulator
from graphsilo.federation.accumulator import Accumulator
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.robust import PLAIN, Robust, averages, length, multi_krum, trimmed_mean
from graphsilo.methods import fednh, scaffold
from graphsilo.methods.fedavg import TrainReply, TrainRequest


def model(*values: float) -> dict[str, Tensor]:
    """A value for each tensor: one by itself and, of the others, a column."""
    return {"a": torch.tensor([values[0]]), "b": torch.tensor(values[1:])[:, None]}


def mean(robust: Robust, answers: list[tuple[list[float], float]], old: tuple[float, ...] = (0.0, 0.0)) -> list[float]:
    """What a server divides: Σ weight · model over Σ weight."""
    total = Accumulator(TrainReply, robust.rule(TrainReply, TrainRequest(weights=model(*old))))
    for client, (values, weight) in enumerate(answers):
        total.add(client, TrainReply(weights=model(*values), num_samples=weight))
    found = total.message()
    assert found.num_samples == sum(weight for _, weight in answers)
    return torch.cat([value.flatten() / found.num_samples for value in found.weights.values()]).tolist()


FIVE = [([1.0, 10.0], 1.0), ([2.0, 20.0], 1.0), ([3.0, 62.0], 1.0), ([4.0, 44.0], 1.0), ([-50.0, 900.0], 100.0)]


@pytest.mark.parametrize(
    ("robust", "wanted"),
    [
        (PLAIN, [-4990 / 104, 90136 / 104]),  # 100 of 104 parts are the liar's
        (Robust("trimmed_mean", 1), [2.0, 42.0]),  # of 1, 2, 3 and of 20, 62, 44
        (Robust("trimmed_mean", 2), [2.0, 44.0]),  # what is left is the median
        (Robust("median", 7), [2.0, 44.0]),
        (Robust("krum", 1), [2.5, 34.0]),  # of all but the last
    ],
)
def test_one_far_off_by_hand(robust: Robust, wanted: list[float]) -> None:
    assert mean(robust, FIVE) == pytest.approx(wanted, rel=1e-12)


def test_the_median_of_an_even_number_is_that_of_the_two_in_the_middle() -> None:
    assert mean(Robust("median"), [([value, -value], 1.0) for value in (9.0, 1.0, 2.0, 4.0)]) == [3.0, -3.0]


def test_what_is_trimmed_is_trimmed_entry_by_entry_and_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [torch.tensor([[1.0, 50.0], [7.0, -1.0]]), torch.tensor([[2.0, 6.0], [90.0, 0.0]]), torch.zeros(2, 2)]
    assert trimmed_mean(values, 1).tolist() == [[1.0, 6.0], [7.0, 0.0]]
    monkeypatch.setattr("graphsilo.federation.robust.BLOCK", 3)
    assert trimmed_mean(values, 1).tolist() == [[1.0, 6.0], [7.0, 0.0]]
    assert trimmed_mean([torch.zeros(0, 4)] * 3, 1).shape == (0, 4)


def test_krum_takes_those_whose_nearest_others_are_close() -> None:
    """Six numbers, one liar: three nearest others, the sums of whose squares are 107, 81, 57, 33, 35 and 89. With two
    nearest the third would go, with four the last, and the last by distances that are not squared."""
    assert multi_krum([{"w": torch.tensor([float(value)])} for value in (0, 1, 5, 9, 10, 13)], 1) == [1, 2, 3, 4, 5]


def test_liars_that_agree_are_no_more_believed() -> None:
    """Seven, two of them the same lie: with 3 nearest others each, one liar's is the other and two far ones."""
    assert multi_krum([{"w": torch.tensor([float(value)])} for value in (50, 0, 1, 50, 2, 3, 4)], 2) == [1, 2, 4, 5, 6]


def test_of_equally_close_ones_the_first_are_taken() -> None:
    assert multi_krum([{"w": torch.zeros(2)}] * 5, 1) == [0, 1, 2, 3]


def test_clipping_by_hand() -> None:
    """Changes (3, 4), (0, 10) and (0, −20) are 5, 10 and 20 long; the last one becomes (0, −10). Weights stay."""
    answers = [([4.0, 5.0], 1.0), ([1.0, 11.0], 2.0), ([1.0, -19.0], 1.0)]
    assert mean(Robust("clip"), answers, old=(1.0, 1.0)) == pytest.approx([1.0 + 3 / 4, 1.0 + (4 + 20 - 10) / 4])


def test_clipping_leaves_alone_what_is_no_longer_than_the_median() -> None:
    """To the last bit: three changes of the same length."""
    answers = [([0.1, 0.0], 3.0), ([0.0, 0.1], 7.0), ([-0.1, 0.0], 1.0)]
    assert mean(Robust("clip"), answers) == mean(PLAIN, answers)


def test_where_most_changes_are_0_none_is_let_in() -> None:
    assert mean(Robust("clip"), [([1.0, 1.0], 1.0)] * 2 + [([9.0, 9.0], 1.0)], old=(1.0, 1.0)) == [1.0, 1.0]


def test_each_client_is_held_against_what_it_was_sent() -> None:
    """Both began elsewhere; all changes are 1 long, and none is shortened."""
    starts = [0.0, 100.0, -100.0]
    requests = {client: TrainRequest(weights=model(start, 0.0)) for client, start in enumerate(starts)}
    total = Accumulator(TrainReply, Robust("clip").rule(TrainReply, requests))
    for client, start in enumerate(starts):
        total.add(client, TrainReply(weights=model(start + 1.0, 0.0), num_samples=1.0))
    assert total.message().weights["a"].tolist() == [3.0]


@pytest.mark.parametrize("way", ["trimmed_mean", "median", "krum", "clip"])
def test_who_has_nothing_to_train_on_has_no_say(way: str) -> None:
    answers = [([float(value), 0.0], 1.0) for value in (1, 2, 3, 4, 5)]
    idle = [([-1e5, 1e5], 0.0)] * 3
    robust = Robust(way, 1)
    assert mean(robust, idle + answers) == pytest.approx(mean(robust, answers))


def test_a_round_without_anybody_stays_where_it_is() -> None:
    total = Accumulator(TrainReply, Robust("krum", 3).rule(TrainReply, TrainRequest(weights=model(0.0, 0.0))))
    total.add(0, TrainReply(weights=model(1.0, 2.0), num_samples=0.0))
    assert (total.message().num_samples, total.message().weights["a"].tolist()) == (0.0, [0.0])


@pytest.mark.parametrize(
    ("robust", "least"),
    [
        (PLAIN, 3), (Robust("trimmed_mean", 2), 5), (Robust("median", 9), 3), (Robust("krum", 2), 7),
        (Robust("clip", 9), 3),
    ],
)  # fmt: skip
def test_fewest_answers(robust: Robust, least: int) -> None:
    assert robust.least == least
    answers = [([float(value), 0.0], 1.0) for value in range(least)]
    mean(robust, answers)
    if robust.way == "none":
        mean(robust, answers[:1])
        return
    with pytest.raises(FederationError, match=rf"{least - 1} clients had something .* run\.robust={robust.way} needs"):
        mean(robust, [*answers[1:], ([9.0, 9.0], 0.0)])


@pytest.mark.parametrize("way", ["none", "trimmed_mean", "median", "krum", "clip"])
def test_equal_models_stay_the_same(way: str) -> None:
    value = torch.tensor([1 / 3, 0.1, -2.7])
    weights = (3.0, 1.0, 0.7, 11.0, 5.0, 2.0)
    found = mean(Robust(way, 1), [(value.tolist(), weight) for weight in weights], old=(0.0, 0.0, 0.0))
    assert torch.equal(torch.tensor(found), value)


@pytest.mark.parametrize("way", ["trimmed_mean", "median", "krum", "clip"])
def test_every_average_of_an_answer_is_guarded_by_itself(way: str) -> None:
    """An honest model beside a lying control variate, which is a change whatever the server's is."""
    request = scaffold.TrainRequest(weights=model(0.0, 0.0), control=model(1e3, 1e3))
    total = Accumulator(scaffold.TrainReply, Robust(way, 1).rule(scaffold.TrainReply, request))
    for client in range(5):
        control = model(9e9, -9e9) if client == 3 else model(1.0, -1.0)
        total.add(client, scaffold.TrainReply(weights=model(2.0, 3.0), control=control, num_samples=1.0))
    found = total.message()
    assert found.weights["a"].tolist() == [10.0]
    assert found.control["a"].tolist() == pytest.approx([5.0])
    assert found.control["b"].flatten().tolist() == pytest.approx([-5.0])


def test_messages_are_kept_until_all_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulator, "MAX_WAITING", 1)
    assert mean(Robust("median"), FIVE) == [2.0, 44.0]


class Beside(TrainReply):
    sums: Tensors = sends("statistic")


class Elsewhere(Message):
    model: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


class Like(Message):
    model: Tensors = sends("model", like="weights", weighted_by="num_samples")
    num_samples: float = sends("counts")


def test_what_an_average_is() -> None:
    """Weighted tensors with names, of a model that was sent or changes by themselves, beside nothing but counts."""
    found = {
        kind: [spec.name for spec in averages(TrainRequest, kind)] for kind in (TrainReply, Like, Elsewhere, Beside)
    }
    assert found == {TrainReply: ["weights"], Like: ["model"], Elsewhere: [], Beside: []}
    assert [spec.name for spec in averages(scaffold.TrainRequest, scaffold.TrainReply)] == ["weights", "control"]
    assert averages(TrainRequest, fednh.TrainReply) == ()
    assert Robust("median").rule(fednh.TrainReply, TrainRequest(weights={})) is None
    assert Robust("median").rule(TrainReply, {}) is None
    assert PLAIN.rule(TrainReply, TrainRequest(weights={})) is None


def test_length() -> None:
    assert length(model(3.0, 4.0), None) == 5.0
    assert length(model(3.0, 4.0), model(3.0, -8.0)) == 12.0
