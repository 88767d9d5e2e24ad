"""Asking for the same sum without one silo: the difference of both would be what that silo sent.

With secure sums the silos' own code is asked, as a coordinator would that begins the last sum again because a silo
dropped out after all. It must refuse (``federation.secure.opened``).
"""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.attacks.measures import wilson
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.recorder import Recorder
from graphsilo.errors import GraphsiloError
from graphsilo.federation.codec import encode
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure import AGAIN
from graphsilo.federation.secure.messages import Again, Offer
from graphsilo.federation.secure.party import Purpose
from graphsilo.runtime.secure import Attempt
from graphsilo.types import ClientId

ATTACK = "replay"
FIGURE = "share of silos left out of a sum that was opened before"


def replay(recorder: Recorder, seed: int, targets: Sequence[ClientId]) -> list[Outcome]:
    """Ask for the last sum again without each silo in turn."""
    if recorder.opened_last is None:
        uses = "not needed: without secure sums the coordinator sees every answer"
        return [Outcome(attack=ATTACK, attacker="coordinator", figure=FIGURE, uses=uses)]
    opened = sum(_can_open(recorder, seed, target) for target in targets)
    uses = "the last sum, begun again without the silo"
    found = wilson(opened, len(targets))
    return [Outcome.of(ATTACK, "coordinator", FIGURE, uses, found, prior=0.0, targets=len(targets))]


def _can_open(recorder: Recorder, seed: int, target: ClientId) -> bool:
    """Whether the others open the sum without the target."""
    exchange = recorder.federation
    assert exchange is not None
    assert exchange.secure is not None
    assert recorder.opened_last is not None
    handler, total = recorder.opened_last
    others = [client for client in total.clients if client != target]
    purpose = Purpose(exchange.secure.run, seed, exchange.ledger.round, handler.name)
    again = dict.fromkeys(others, encode(Again()))
    offers = {
        client: offer
        for client, offer in exchange.secure.answers(exchange, handler, AGAIN, again, Offer)
        if not isinstance(offer, Failure)
    }
    failures: dict[ClientId, Failure] = {}
    try:
        Attempt(exchange.secure, exchange, handler, offers, failures).open(handler.types()[1], purpose)
    except GraphsiloError:
        return False
    return True
