"""What a secure sum costs a client and the coordinator, and how near it is to the plain sum.

The automata of ``graphsilo.federation.secure`` in one process, with every message encoded and decoded as on its way:
processor seconds of each client's steps and of the coordinator's, bytes both ways, and the float32 means held against
those of a float64 sum.

    python benchmarks/secure_sums.py                                  # all
    python benchmarks/secure_sums.py --clients 10 --megabytes 0.37 --gone 0
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import torch

from graphsilo.federation.codec import decode, encode
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.secure.coordinator import SecureSum
from graphsilo.federation.secure.messages import Confirmation, Letters, Masked, Opening
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.party import Identity, Party, Purpose, Unproved

CASES = ((10, 0.37, 0), (10, 0.37, 1), (100, 0.37, 0), (100, 0.37, 10), (10, 50.0, 0), (10, 50.0, 1), (100, 50.0, 10))
"""Clients, megabytes of a model in float32, and how many drop out after they have shared their secrets."""
KINDS: dict[str, type[Message]] = {"share": Letters, "mask": Masked, "confirm": Confirmation, "open": Opening}
PURPOSE = Purpose("benchmark", 0, 1, "train")
DISTINCT = 4
"""Models that clients take turns with, so that a hundred large ones fit into memory."""


class Update(Message):
    """As FedAvg's answers."""

    weights: Tensors = sends("model", weighted_by="num_samples")
    num_samples: float = sends("counts")


class Meter:
    """Processor seconds of clients and of the coordinator, and bytes."""

    def __init__(self) -> None:
        self.clients = self.coordinator = 0.0
        self.up = self.down = 0

    def client(self, step: Any, message: Message) -> Any:
        """A client's step, on a message that is encoded by the coordinator and decoded by the client."""
        sent, started = encode(message), time.process_time()
        answer = encode(step(decode(sent.data, type(message))))
        self.clients += time.process_time() - started
        self.down += sent.num_bytes
        self.up += answer.num_bytes
        return answer

    def step(self, name: str, parties: Mapping[int, Party], messages: Mapping[int, Message], take: Any) -> None:
        for client, message in messages.items():
            answer = self.client(getattr(parties[client].current, name), message)
            started = time.process_time()
            take(client, decode(answer.data, KINDS[name]))
            self.coordinator += time.process_time() - started


def measure(clients: int, megabytes: float, gone: int) -> None:
    entries = int(megabytes * 1e6 / 4)
    draw = torch.Generator().manual_seed(0)
    models = [0.1 * torch.randn(entries, generator=draw) for _ in range(DISTINCT)]
    answers = {
        client: Update(weights={"w": models[client % DISTINCT]}, num_samples=float(17 + 37 * client % 983))
        for client in range(clients)
    }
    parties = {client: Party(client, Identity.generate(), Unproved(), OpenedSums()) for client in answers}
    meter, plain = Meter(), encode(answers[0])
    started = time.process_time()
    offers = {client: parties[client].begin(PURPOSE, answer, plain.data) for client, answer in answers.items()}
    meter.clients += time.process_time() - started
    meter.up += sum(encode(offer).num_bytes for offer in offers.values())
    started = time.process_time()
    made: SecureSum[Update] = SecureSum(Update, PURPOSE, offers, Unproved())
    roster = made.roster()
    meter.coordinator += time.process_time() - started
    meter.step("share", parties, dict.fromkeys(made.clients, roster), made.take_letters)
    posts = dict(list(made.make_posts().items())[gone:])
    meter.step("mask", parties, posts, made.add)
    came = made.close_answers()
    meter.step("confirm", parties, dict.fromkeys(came.clients, came), made.confirm)
    meter.step("open", parties, dict.fromkeys(made.confirming, made.close_confirmations()), made.take_opening)
    started = time.process_time()
    total = made.result()
    meter.coordinator += time.process_time() - started
    weight, reference = 0.0, torch.zeros(entries, dtype=torch.float64)
    for client in came.clients:
        reference += answers[client].weights["w"].double() * answers[client].num_samples
        weight += answers[client].num_samples
    ours, theirs = (total.weights["w"] / weight).float(), (reference / weight).float()
    apart = (ours.view(torch.int32) - theirs.view(torch.int32)).abs()
    ratio = meter.up / (len(came.clients) * plain.num_bytes)
    print(
        f"{clients} clients, {made.peers.degree} peers each, {megabytes:g} MB, {gone} gone: "
        f"{meter.clients / clients:.3f} s a client, {meter.coordinator:.3f} s the coordinator; "
        f"{ratio:.3f} x the plain upload, {meter.down / clients / 1e3:.1f} kB down each beside the request; "
        f"{100 * float((apart == 0).double().mean()):.4f} % of float32 means the same, {int(apart.max())} ulp at most",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--megabytes", type=float, default=0.37)
    parser.add_argument("--gone", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES if given.clients is None else ((given.clients, given.megabytes, given.gone),):
        measure(*case)


if __name__ == "__main__":
    main()
