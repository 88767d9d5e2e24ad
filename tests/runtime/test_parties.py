"""The clients of a process in secure sums."""

from __future__ import annotations

import pytest

from graphsilo.federation.codec import encode
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure import AGAIN, SHARE, STEPS
from graphsilo.federation.secure.messages import Again, Came
from graphsilo.runtime.parties import Parties


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_step_without_a_sum_is_a_failure_that_says_so(step):
    found = Parties().answer(3, step, encode(Again()).data)
    assert isinstance(found, Failure)
    assert (found.client, found.handler, found.kind) == (3, step, "DisclosureError")
    assert found.reason == "client 3 takes part in no sum."


def test_a_message_of_another_step_is_a_failure():
    from kit.secure import PURPOSE, updates

    parties = Parties()
    party = parties._parties[0] = parties.make(0)
    party.begin(PURPOSE, updates(3)[0], encode(updates(3)[0]).data)
    found = parties.answer(0, SHARE, encode(Came(clients=[0])).data)
    assert isinstance(found, Failure)
    assert found.kind == "MessageError"
    assert not isinstance(parties.answer(0, AGAIN, encode(Again()).data), Failure)


def test_what_nobody_has_worded_stays_at_the_silo():
    """The text of an unexpected error may quote the answer."""
    parties = Parties()
    parties._parties[0] = object()  # type: ignore[assignment]
    found = parties.answer(0, AGAIN, encode(Again()).data)
    assert isinstance(found, Failure)
    assert (found.kind, found.reason) == ("AttributeError", "what went wrong stands in the log at the silo")
    assert "'object' object has no attribute 'offer_again'" in found.trace
