"""Models in fewer bytes: levels, places and what is left out, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.compressing import compressible
from graphsilo.federation.compression import Compression
from graphsilo.federation.interface import handlers_of
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.methods import fedavg, fedproto, scaffold
from graphsilo.methods.fedavg import TrainReply, TrainRequest

INT8, HALF = Compression("int8"), Compression("topk", 0.5)


def request(**weights: Any) -> TrainRequest:
    return TrainRequest(weights={name: torch.tensor(value) for name, value in weights.items()})


def reply(weights: Mapping[str, Tensor]) -> TrainReply:
    return TrainReply(weights=dict(weights), num_samples=3.0)


def trained(asked: TrainRequest, **change: Any) -> TrainReply:
    """An answer that is the model of the request and a change."""
    return reply({name: asked.weights[name] + torch.tensor(value) for name, value in change.items()})


def sent(way: Compression, asked: TrainRequest, answer: TrainReply, kept: dict[str, Tensor]) -> Any:
    return way.compress("train", asked, answer, kept)


def came(way: Compression, message: Message, asked: TrainRequest, largest: float = 1e6) -> TrainReply:
    """What arrives of a message, by way of its bytes."""
    carrier = way.find_carrier(TrainRequest, TrainReply)
    return way.restore(decode(encode(message).data, carrier, largest_value=largest), asked, TrainReply, largest)


def test_levels_are_multiples_of_the_tensors_own_scale() -> None:
    """a changes by at most 254, so its step is 2: 3 is halfway between 1 and 2 steps and goes to the even 2; -255 + 1
    = -254 is -127 steps. b changes by at most 1.27, so its step is 0.01. c stays as it is."""
    asked = request(a=[0.0, 0.0, 1.0], b=[[0.0], [1.0]], c=[5.0])
    message = sent(INT8, asked, trained(asked, a=[3.0, 254.0, -254.0], b=[[1.27], [-0.5]], c=[0.0]), kept := {})
    assert message.weights["levels"].tolist() == [2, 127, -127, 127, -50, 0]
    assert message.weights["levels"].dtype is torch.int8
    assert message.weights["scales"].tolist() == pytest.approx([2.0, 0.01, 0.0])
    assert kept["train/weights"][:3].tolist() == [-1.0, 0.0, 0.0]  # 3 was said as 4
    arrived = came(INT8, message, asked)
    assert arrived.weights["a"].tolist() == [4.0, 254.0, -253.0]
    assert arrived.weights["b"].shape == (2, 1)
    assert arrived.weights["c"].tolist() == [5.0]
    assert arrived.num_samples == 3.0


def test_largest_entries_are_sent_and_of_equal_ones_the_first() -> None:
    """Half of six entries are three: -4 and, of the four of size 2, those at places 0 and 2."""
    asked = request(a=[1.0, 1.0, 1.0], b=[1.0, 1.0, 1.0])
    message = sent(HALF, asked, trained(asked, a=[2.0, 0.5, -2.0], b=[2.0, -4.0, 2.0]), kept := {})
    assert message.weights["indices"].tolist() == [0, 2, 4]
    assert message.weights["values"].tolist() == [2.0, -2.0, -4.0]
    assert kept["train/weights"].tolist() == [0.0, 0.5, 0.0, 2.0, 0.0, 2.0]
    arrived = came(HALF, message, asked)
    assert arrived.weights["a"].tolist() == [3.0, 1.0, -1.0]
    assert arrived.weights["b"].tolist() == [1.0, -3.0, 1.0]


def test_what_was_left_out_is_added_to_the_next_change() -> None:
    """Of two entries one is sent. Changes (4, 3) and (1, 1): first 4, then 3 + 1 = 4 beats 0 + 1, then 1."""
    asked, kept = request(a=[0.0, 0.0]), {}
    for change, said in (([4.0, 3.0], [4.0, 0.0]), ([1.0, 1.0], [0.0, 4.0]), ([0.0, 0.0], [1.0, 0.0])):
        arrived = came(HALF, sent(HALF, asked, trained(asked, a=change), kept), asked)
        assert arrived.weights["a"].tolist() == said
    assert kept["train/weights"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("way", [INT8, HALF, Compression("topk", 0.1)], ids=["int8", "half", "tenth"])
def test_all_that_arrives_and_what_is_left_out_are_the_true_change(way: Compression) -> None:
    generator = torch.Generator().manual_seed(3)
    asked, kept = request(a=torch.randn(40, generator=generator).tolist(), b=[[1.0, 2.0]]), {}
    true, arrived = torch.zeros(42, dtype=torch.float64), torch.zeros(42, dtype=torch.float64)
    for _ in range(20):
        change = torch.randn(42, generator=generator)
        answer = trained(asked, a=change[:40].tolist(), b=[change[40:].tolist()])
        got = came(way, sent(way, asked, answer, kept), asked)
        for total, other in ((true, answer), (arrived, got)):
            total += torch.cat([(other.weights[name] - asked.weights[name]).view(-1) for name in "ab"]).double()
    assert (true - arrived - kept["train/weights"].double()).abs().max() < 1e-4
    assert kept["train/weights"].abs().max() > 0


def test_bytes_are_those_that_were_sent() -> None:
    """1000 entries in two tensors: 4000 bytes; in int8 1000 and two scales; of topk a tenth, 100 numbers and places."""
    asked = request(a=[0.0] * 600, b=[0.0] * 400)
    answer = trained(asked, a=[1.0] * 600, b=[0.5] * 400)

    def weights(way: Compression) -> int:
        (size,) = (size for name, kind, size in encode(sent(way, asked, answer, {})).field_bytes if kind == "model")
        return size

    padding = 63  # every tensor is filled up to 64 bytes
    assert 4000 <= weights(Compression()) <= 4000 + 2 * padding
    assert 1000 + 8 <= weights(INT8) <= 1008 + 2 * padding
    assert 400 + 400 <= weights(Compression("topk", 0.1)) <= 800 + 2 * padding


def test_only_models_that_were_sent_are_compressed() -> None:
    assert [spec.name for spec in compressible(fedavg.TrainRequest, fedavg.TrainReply)] == ["weights"]
    # The control variates are gradients, and go as they are.
    assert [spec.name for spec in compressible(scaffold.TrainRequest, scaffold.TrainReply)] == ["weights"]
    steps = [step.types() for step in handlers_of(fedproto.METHOD.client).values()]
    assert not any(compressible(*types) for types in steps)
    assert INT8.find_carrier(fedavg.TrainRequest, fedavg.TrainReply).wire_name() == "fedavg.TrainReply (int8)"
    assert Compression().find_carrier(fedavg.TrainRequest, fedavg.TrainReply) is TrainReply

    class Other(Message):
        weights: Tensors = sends("model")

    class Asked(Message):
        number: int = sends("control")

    assert INT8.find_carrier(Asked, Other) is Other


def test_a_change_that_is_none_is_not_sent() -> None:
    asked, kept = request(a=[0.0, 0.0]), {}
    with pytest.raises(MessageError, match="NaN or infinity, which cannot be compressed"):
        sent(INT8, asked, trained(asked, a=[float("nan"), 0.0]), kept)
    with pytest.raises(MessageError, match="their difference cannot be compressed"):
        sent(INT8, asked, reply({"b": torch.zeros(2)}), kept)
    assert kept == {}


LIES = {
    "negative-scale": (INT8, "scales", torch.tensor([-1.0]), "a scale below 0"),
    "nan-scale": (INT8, "scales", torch.tensor([float("nan")]), "NaN or infinity"),
    "huge-scale": (INT8, "scales", torch.tensor([1e5]), r"holds 1\.27e\+07; at most 1e\+06 is taken"),
    "two-scales": (INT8, "scales", torch.ones(2), "was to hold scales of 1 float32"),
    "level-below": (INT8, "levels", torch.tensor([-128, 0, 0, 0], dtype=torch.int8), "a level below -127"),
    "floats-for-levels": (INT8, "levels", torch.ones(4), "was to hold levels of 4 int8"),
    "fewer-levels": (INT8, "levels", torch.ones(3, dtype=torch.int8), "was to hold levels of 4 int8"),
    "place-outside": (HALF, "indices", torch.tensor([0, 4], dtype=torch.int32), "do not ascend from 0 to 3"),
    "place-below": (HALF, "indices", torch.tensor([-1, 2], dtype=torch.int32), "do not ascend from 0 to 3"),
    "place-twice": (HALF, "indices", torch.tensor([2, 2], dtype=torch.int32), "do not ascend from 0 to 3"),
    "infinite-value": (HALF, "values", torch.tensor([float("inf"), 1.0]), "NaN or infinity"),
    "more-values": (HALF, "values", torch.ones(3), "was to hold values of 2 float32"),
    "other-part": (HALF, "rest", torch.ones(2), "was to hold values of 2 float32"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_who_lies_is_refused(lie: str) -> None:
    way, part, value, words = LIES[lie]
    asked = request(a=[1.0, 2.0, 3.0, 4.0])
    message = sent(way, asked, trained(asked, a=[1.0, 1.0, 1.0, 127.0]), {})
    changed = replace(message, weights={**message.weights, part: value})
    with pytest.raises(MessageError, match=words):
        came(way, changed, asked)
