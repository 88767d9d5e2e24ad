"""The suite catches a method that looks at labels which it must not use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.methods import fedavg
from graphsilo.testing.conformance import ConformanceError, check_labels_stay, hide_labels, small_config


class Choosing(fedavg.FedAvgConfig):
    """Says that clients choose by validation."""

    @property
    def chooses_by_validation(self):
        return True


def peeking(where, kind):
    """FedAvg whose clients let the labels of ``kind`` nodes into one of the places that the check looks at."""

    class Client(fedavg.Client):
        def peek(self, place):
            labels = self.silo.seen.graph.labels[self.silo.seen.items[kind]]
            return int(labels @ np.arange(len(labels))) if where == place else 0

        @property
        def weight(self):
            return super().weight + self.peek("sent")

        def state(self):
            return {**super().state(), "note": self.peek("state")}

        def predict(self, data, view="own"):
            return super().predict(data, view) + self.peek("predictions")

    return replace(fedavg.METHOD, name="peeking", client=Client)


FOUND = {"sent": "change what is sent", "state": "a client's state", "predictions": "what a client predicts"}


@pytest.mark.parametrize("kind", ["val", "test"])
@pytest.mark.parametrize("where", FOUND)
def test_labels_that_leak_are_found(monkeypatch, where, kind):
    method = peeking(where, kind)
    monkeypatch.setitem(registry._REGISTERED, "peeking", method)
    with pytest.raises(ConformanceError, match=f"peeking: labels of validation or test nodes .*{FOUND[where]}"):
        check_labels_stay(method, {})


def test_who_chooses_by_validation_may_look_at_it_alone(monkeypatch):
    for kind in ("val", "test"):
        method = replace(peeking("state", kind), config=Choosing)
        monkeypatch.setitem(registry._REGISTERED, "peeking", method)
        if kind == "val":
            check_labels_stay(method, {})
        else:
            with pytest.raises(ConformanceError, match="labels of test nodes change a client's state"):
                check_labels_stay(method, {})


def test_which_labels_are_permuted():
    method = registry.load("fedavg")
    silo = prepare(small_config(method, {}), method).silos[0]
    items = silo.seen.items
    for validation in (True, False):
        hidden = hide_labels(silo, validation=validation)
        changed = np.flatnonzero(hidden.graph.labels != silo.graph.labels)
        assert len(np.intersect1d(changed, items["test"])) > 0
        assert (len(np.intersect1d(changed, items["val"])) > 0) is validation
        assert not len(np.intersect1d(changed, silo.train))
        assert np.array_equal(np.sort(hidden.graph.labels), np.sort(silo.graph.labels))
        assert hidden.seen.graph is hidden.graph
