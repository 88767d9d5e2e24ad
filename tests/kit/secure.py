"""Parties and a coordinator of a secure sum in this process, with anybody dropping out at any step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.federation.codec import encode
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.secure.coordinator import SecureSum
from graphsilo.federation.secure.messages import Masked
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.party import Identity, Party, Purpose, Sum, Unproved

PURPOSE = Purpose("run", 0, 1, "train")
DIRECTORY = Unproved()
STEPS = ("share", "mask", "confirm", "open")


class Update(Message):
    """As FedAvg's answers."""

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


class Statistics(Message):
    """Whole numbers and floats without a weight."""

    hits: Tensor = sends("counts", dtype=(torch.int64, torch.int32))
    sums: Tensor = sends("statistic", dtype=(torch.float32, torch.float64))
    wide: Tensor = sends("statistic", dtype=torch.float64, words=3)
    listed: list[Tensor] = sends("statistic", default=())
    number: int = sends("counts")
    share: float = sends("score")


def updates(clients: int, entries: int = 7) -> dict[int, Update]:
    """An answer for each client."""
    draw = torch.Generator().manual_seed(clients)
    return {
        client: Update(weights={"w": torch.randn(entries, generator=draw)}, num_samples=10.0 * client + 1)
        for client in range(clients)
    }


@dataclass
class Scene:
    """All parties of one sum.

    Attributes:
        answers: Of each client.
        records, identities: Of some of them; the others' are made up.
        data: Hash of everybody's data.
        sent: Everything that went over the wire, both ways: step, client, message.
        secrets: What no message may hold: private keys and the seed of the own mask.
    """

    answers: Mapping[int, Message]
    records: Mapping[int, OpenedSums] = field(default_factory=dict)
    identities: Mapping[int, Identity] = field(default_factory=dict)
    data: str = ""
    sent: list[tuple[str, int, Message]] = field(default_factory=list)
    parties: dict[int, Party] = field(default_factory=dict)
    secrets: dict[int, tuple[bytes, bytes, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for client in self.answers:
            if client not in self.parties:
                record, identity = self.records.get(client), self.identities.get(client)
                self.parties[client] = Party(
                    client, identity or Identity.generate(), DIRECTORY, record or OpenedSums(), data=self.data
                )

    def begin(self, purpose: Purpose = PURPOSE) -> SecureSum[Any]:
        """Offers, and the coordinator's part."""
        offers = {
            client: self.parties[client].begin(purpose, answer, encode(answer).data)
            for client, answer in self.answers.items()
        }
        for client, party in self.parties.items():
            made = party.current
            self.secrets[client] = made._masking, made._letters, made._seed
        self.sent += [("offer", client, offer) for client, offer in offers.items()]
        return SecureSum(type(next(iter(self.answers.values()))), purpose, offers, DIRECTORY)

    def run(self, gone: Mapping[str, Collection[int]] | None = None, made: SecureSum[Any] | None = None) -> Any:
        """The sum, with some clients that drop out at a step and stay away."""
        made = self.begin() if made is None else made
        away: set[int] = set()
        made.require()
        away |= set((gone or {}).get("share", ()))
        self._step("share", dict.fromkeys(made.clients, made.roster()), made.take_letters, away)
        posts = made.make_posts()
        away |= set((gone or {}).get("mask", ()))
        self._step("mask", posts, made.add, away)
        came = made.close_answers()
        away |= set((gone or {}).get("confirm", ()))
        self._step("confirm", dict.fromkeys(came.clients, came), made.confirm, away)
        confirmed = made.close_confirmations()
        away |= set((gone or {}).get("open", ()))
        self._step("open", dict.fromkeys(made.confirming, confirmed), made.take_opening, away)
        self.made = made
        return made.result()

    def _step(self, name: str, messages: Mapping[int, Message], take: Any, away: set[int]) -> None:
        for client, message in messages.items():
            if client in away:
                continue
            self.sent.append((f"{name}, asked", client, message))
            assert encode(message).num_bytes  # it is one that can be sent
            answer = getattr(self.parties[client].current, name)(message)
            self.sent.append((name, client, answer))
            take(client, answer)


def reference(answers: Mapping[int, Update], clients: Collection[int], bits: int, parties: int) -> list[int]:
    """The words of the sum of weighted floats by Python's integers: Σ round(w · x · 2^F)."""
    behind = 50 - bits - max(0, parties - 1).bit_length()
    total = [0] * len(next(iter(answers.values())).weights["w"])
    for client in clients:
        weight = answers[client].num_samples
        for place, value in enumerate(answers[client].weights["w"].tolist()):
            total[place] += round(weight * value * 2.0**behind)
    return total


def lying(monkeypatch: pytest.MonkeyPatch, lie: Callable[[str, Any], Any], client: int = 2) -> None:
    """One client masks other numbers than it has: ``lie`` moves the words of its fields, by their kind."""
    mask = Sum.mask

    def moved(self: Sum, post: Any) -> Masked:
        words = mask(self, post).words.numpy().view("<u8").copy()
        if self.party.client == client:
            start = 0
            for part in self._kept.layout.parts:
                behind = 0 if part.whole else self._kept.layout.fraction(part, self._bits, self.count)
                rest = int(lie(part.spec.kind, behind))
                for word in range(part.words):  # digits to the base 2^50, the last one with all that is left
                    digit = rest if word == part.words - 1 else rest & ((1 << 50) - 1)
                    rest >>= 50
                    with np.errstate(over="ignore"):
                        words[start : start + part.entries] += np.uint64(digit % (1 << 64))
                    start += part.entries
        return Masked(words=torch.from_numpy(words.view(np.uint8)))

    monkeypatch.setattr(Sum, "mask", moved)


def garbling(monkeypatch: pytest.MonkeyPatch, victims: Mapping[int, Collection[int]], part: str = "letters") -> None:
    """Some clients send letters (or marks of them) that some of their peers cannot take."""
    share = Sum.share

    def garbled(self: Sum, roster: Any) -> Any:
        sent = share(self, roster)
        bad = torch.tensor([255 * (peer in victims.get(self.party.client, ())) for peer in sent.clients])
        return replace(sent, **{part: getattr(sent, part) ^ bad[:, None].to(torch.uint8)})

    monkeypatch.setattr(Sum, "share", garbled)
