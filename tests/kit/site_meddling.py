"""A transport that does what networks and liars do, over the real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphsilo.federation.codec import decode
from graphsilo.runtime.protocol import Packet, pack, unpack
from graphsilo.runtime.transport import Body, Parts, Transport, views_of
from graphsilo.testing.conformance import encode_unchecked

Before = Callable[[str, Mapping[str, Any]], None]
After = Callable[[str, Mapping[str, Any], bytearray], bytearray]


class Meddling(Transport):
    """Passes requests on.

    Args:
        inner: The real transport.
        before: Is told site and header of every request before it goes; may raise Unreachable.
        after: Is told these and the answer, and returns what arrives.
    """

    def __init__(self, inner: Transport, before: Before | None = None, after: After | None = None):
        self.inner, self.before, self.after = inner, before, after
        self.sites = inner.sites

    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        header = unpack(bytearray().join(views_of(body))).header
        if self.before is not None:
            self.before(site, header)
        answer = self.inner.request(site, body, timeout=timeout)
        return answer if self.after is None else self.after(site, header, bytearray(answer))


def once(condition: Callable[[str, Mapping[str, Any]], bool], action: Callable[[], None]) -> Before:
    """Do something at the first request that fulfils a condition."""
    done = []

    def before(site: str, header: Mapping[str, Any]) -> None:
        if not done and condition(site, header):
            done.append(True)
            action()

    return before


def training_call(site: str, round_number: int) -> Callable[[str, Mapping[str, Any]], bool]:
    """Whether a request asks this site for a training step of this round."""
    return lambda where, header: (
        where == site
        and header.get("do") == "call"
        and header.get("round") == round_number
        and header.get("handler") != "evaluate"
    )


def opened(answer: bytearray) -> Packet:
    """An answer, to be changed by a liar."""
    return unpack(answer)


def telling(
    handler: str, kind: Any, change: Callable[[Any], Any], *, site: str = "south", rounds: tuple[int, ...] | None = None
) -> After:
    """A site with one client, client 1 where it is 'south', changes what it answers to one step.

    Args:
        handler: The step.
        kind: Of the answer.
        change: Makes another of it, which no honest sender need be able to encode.
        site: Who lies.
        rounds: In which rounds; None: in all.
    """

    def after(where: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if where != site or header.get("handler") != handler or (rounds and header.get("round") not in rounds):
            return answer
        return changed(answer, kind, change)

    return after


def changed(answer: bytearray, kind: Any, change: Callable[[Any], Any]) -> bytearray:
    """Another message in the answer, well packed."""
    packet = unpack(answer)
    encoded = encode_unchecked(change(decode(bytes(packet.payloads[0]), kind)))
    packet.header["answers"][0]["fields"] = [list(item) for item in encoded.field_bytes]
    return pack(packet.header, [encoded.data])
