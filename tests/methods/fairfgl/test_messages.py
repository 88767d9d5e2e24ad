"""What the messages of FairFGL carry and weigh."""

from __future__ import annotations

import pytest
import torch

from graphsilo.federation.codec import encode
from graphsilo.methods import fairfgl
from graphsilo.methods.fairfgl.messages import TrainReply, TrainRequest
from graphsilo.methods.fairfgl.updates import keep_largest
from kit.fairfgl import patch, rounds

# -- upload and server ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.6, 1.0])
def test_bytes_on_the_wire_are_the_formulas(kit, share):
    """Up: min(8k, 4k + 1/8, 4) P; down: 4P and the other client's update as it came. Each tensor padded to 64."""
    silos = [patch(client, features=40) for client in range(3)]
    server, federation = kit.build("fairfgl", silos, top_k=share, model_options={"hidden": 16})
    rounds(server, federation, 2)
    total = sum(value.numel() for value in server.weights.values())
    kept = int(share * (total - 1) + 1e-9) + 1
    short = min(8 * kept, 4 * kept + (total + 7) // 8, 4 * total)
    rows = [row for row in federation.ledger.rows() if row[:2] == ("round", 2)]
    names = ("values", "positions", "bitmap")
    for client in (0, 1, 2):
        up = {row[6]: row[8] for row in rows if row[2] == client and row[3] == "up"}
        down = {row[6]: row[8] for row in rows if row[2] == client and row[3] == "down"}
        sent = sum(up[name] for name in names)
        assert short <= sent < short + 2 * 64
        assert 4 * total <= down["weights"] < 4 * total + 4 * 64
        assert short <= sum(down[f"deviated_{name}"] for name in names) < short + 2 * 64
    assert server.log["kept"] == pytest.approx(kept / total)
    assert {row[7] for row in rows} == {"model", "counts", "control"}


def test_what_is_passed_on_is_declared_and_is_what_came(kit):
    specs = {spec.name: spec for message in (TrainReply, TrainRequest) for spec in message.specs()}
    passed = {"values", "positions", "bitmap", "deviated_values", "deviated_positions", "deviated_bitmap"}
    assert {name for name, spec in specs.items() if spec.relayed} == passed
    server, federation = kit.build("fairfgl", [patch(client) for client in range(3)])
    federation.at("round", 1)
    replies = federation.ask(fairfgl.Client.train, TrainRequest(weights=server.weights))
    again, other = kit.build("fairfgl", [patch(client) for client in range(3)])
    rounds(again, other)
    for client, opposite in again.deviated.items():
        request = again._requests((0, 1, 2))[client]
        assert torch.equal(request.deviated_values, replies[opposite].values)
        assert torch.equal(request.deviated_bitmap, replies[opposite].bitmap)


def test_messages_have_plain_names():
    update = keep_largest(torch.arange(100.0), 0.5)
    encoded = encode(TrainReply(**update._asdict(), num_samples=1.0))
    assert [(name, size) for name, _, size in encoded.field_bytes] == [
        ("values", 256), ("positions", 0), ("bitmap", 64), ("num_samples", 0),
    ]  # fmt: skip
