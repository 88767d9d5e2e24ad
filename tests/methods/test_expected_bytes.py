"""What a server says beforehand that a run will send, beside what was sent."""

from __future__ import annotations

from collections import Counter

import pytest

from graphsilo.federation import registry
from graphsilo.federation.codec import decode
from graphsilo.federation.message import tensors_in
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing import conformance

METHODS = [method for method in map(registry.load, registry.names()) if not method.pooled]


def tensor_bytes(encoded, kind):
    """Bytes of a message's tensors, without names, shapes and padding."""
    message = decode(encoded.data.copy(), kind)
    values = [getattr(message, spec.name) for spec in message.specs() if spec.form.startswith("tensor")]
    return sum(tensor.nbytes for value in values if value is not None for tensor in tensors_in(value))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_what_is_expected_is_sent(method):
    """What silos have nothing for is counted, too: prototypes in the first round, the smaller children of deep trees.
    Of set-up a server knows less, and a person is told of the larger way."""
    sent = Counter()

    class Weighed(InProcess):
        def deliver(self, handler, round, outgoing):
            asked, answered = getattr(method.client, handler).types()
            sent[round > 0, 1] += sum(tensor_bytes(each, asked) for each in outgoing.values())
            for client, answer in super().deliver(handler, round, outgoing):
                sent[round > 0, 0] += tensor_bytes(answer, answered)
                yield client, answer

    server, federation, _ = conformance.assemble(method, method.quick, runtime=Weighed)
    expected = server.expected_bytes()
    if not any(expected):
        return  # nobody can say
    federation.at("setup", 0)
    server.set_up(federation)
    for number in range(1, server.rounds + 1):
        federation.at("round", number)
        server.round(federation, number)
    before = sent[False, 0] + sent[False, 1]
    ways, most = ((0, 1), 1.5) if not before else ([expected.index(max(expected))], 3.2)
    for way in ways:
        assert 0.94 * sent[True, way] <= expected[way] <= most * (sent[True, way] + sent[False, way])
