"""Declaring messages: every field says what it discloses."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import KINDS, Message, Tensors, sends


class Base(Message):
    weights: Tensors = sends("model")


class Extended(Base):
    count: int = sends("counts", default=2)


def test_a_field_without_disclosure_is_refused():
    with pytest.raises(MessageError, match=r"Bad\.features declares no disclosure"):

        class Bad(Message):
            features: Tensor


def test_a_plain_default_is_no_disclosure():
    with pytest.raises(MessageError, match=r"Bad\.number declares no disclosure"):

        class Bad(Message):
            number: int = 3


def test_a_foreign_dataclass_field_is_no_disclosure():
    with pytest.raises(MessageError, match="declares no disclosure"):

        class Bad(Message):
            number: int = dataclasses.field(default=3)


def test_a_subclass_cannot_add_undeclared_fields():
    with pytest.raises(MessageError, match=r"Bad\.more declares no disclosure"):

        class Bad(Base):
            more: Tensor


@pytest.mark.parametrize("kind", ["features", "labels", "raw", "", "Model"])
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(MessageError, match="is no kind of disclosure"):
        sends(kind)


def test_there_is_no_kind_for_features_or_labels():
    assert set(KINDS) == {
        "model", "gradient", "prototype", "statistic", "embedding", "generator", "synthetic", "counts", "topology",
        "logits", "score", "control",
    }  # fmt: skip


def test_the_nearest_kind_is_named():
    with pytest.raises(MessageError, match=r"did you mean 'prototype'\?"):
        sends("prototypes")


@pytest.mark.parametrize(
    "annotation", [object, set[int], bytes, list[object], list[list[Tensor]], dict[str, object], int | str, complex]
)
def test_types_that_no_message_can_carry(annotation):
    kind = type("Odd", (Message,), {"__annotations__": {"value": annotation}, "value": sends("control")})
    with pytest.raises(MessageError, match=r"Odd\.value has type .* which no message can carry"):
        kind.specs()


def test_inherited_fields_come_first():
    assert [spec.name for spec in Extended.specs()] == ["weights", "count"]
    assert [spec.name for spec in Base.specs()] == ["weights"]
    back = decode(encode(Extended(weights={"w": torch.ones(1)})).data, Extended)
    assert back.count == 2


def test_messages_are_frozen_and_named():
    message = Base(weights={})
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.weights = {}
    with pytest.raises(TypeError):
        Base({})
    assert Base.wire_name() == "test_message.Base"


def test_repr_shows_shapes_not_values():
    class Shown(Message):
        rows: Tensor = sends("embedding")
        weights: Tensors = sends("model")
        number: int = sends("counts")

    text = repr(Shown(rows=torch.full((2, 3), 7.25), weights={"a": torch.ones(1)}, number=4))
    assert text == "Shown(rows=<(2, 3) float32>, weights=<1 tensors>, number=4)"
