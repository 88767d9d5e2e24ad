"""Losses that settings of local training name, by hand and through a client."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError
from graphsilo.federation.settings import LocalTrainingConfig
from graphsilo.methods.feded import FedEDConfig
from graphsilo.training.item_losses import item_loss

Z = torch.tensor([[0.5, -2.0], [3.0, 1.0]])
Y = torch.tensor([[1.0, torch.nan], [0.0, 1.0]])


def of(task, counts=(), **settings):
    silo = SimpleNamespace(schema=SimpleNamespace(task=task), class_counts=lambda: np.array(counts))
    return item_loss(LocalTrainingConfig(**settings), silo)


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({}, [0.25, 4.5]),
        ({"loss": "absolute"}, [0.5, 1.5]),
        ({"loss": "huber"}, [0.125, 1.25]),  # ½ · ¼; ½ (3 − ½ + 0)
        ({"loss": "huber", "huber_delta": 4.0}, [0.125, 2.25]),
    ],
    ids=str,
)
def test_numbers(settings, values):
    assert of("regression", **settings)(Z, Y).tolist() == pytest.approx(values)


def test_labels_are_cross_entropy_of_those_that_are_known():
    each = F.binary_cross_entropy_with_logits(Z, Y.nan_to_num(), reduction="none")
    assert of("multilabel")(Z, Y).tolist() == pytest.approx([float(each[0, 0]), float(each[1].mean())])
    zero = of("multilabel", loss="focal", gamma=0.0)(Z, Y)
    torch.testing.assert_close(zero, of("multilabel")(Z, Y))
    assert (of("multilabel", loss="focal")(Z, Y) < zero).all()


def test_plain_cross_entropy_is_none_and_classes_weigh():
    assert of("node") is None
    assert of("node", loss="focal", gamma=0.0) is None
    labels = torch.tensor([0, 1])
    loss = of("node", (3, 1), class_weights="inverse")
    wanted = torch.tensor([2 / 3, 2.0]) * F.cross_entropy(Z, labels, reduction="none")
    torch.testing.assert_close(loss(Z, labels), wanted)


def test_a_loss_of_another_task_is_refused():
    with pytest.raises(ConfigError, match="loss=huber is for the task regression, and the task is node"):
        of("node", loss="huber")


def test_a_method_with_a_loss_of_its_own_has_no_such_setting():
    with pytest.raises(ConfigError, match=r"unknown setting 'method\.loss'"):
        FedEDConfig(loss="focal")
    assert FedEDConfig().loss == "auto"
