"""What the server of FedPG makes of the answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.federation import registry
from graphsilo.federation.codec import encode
from graphsilo.methods.fedpg import Client
from graphsilo.methods.fedpg.messages import HelloReply
from graphsilo.methods.fedpg.server import mean_cosine
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing.conformance import assemble
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from kit.fedpg import SHORT, silo_of, weights_in


def test_mixing_everybody_without_the_generator_is_fedprotos_mean(kit):
    """Σ n_kc P_kc / Σ n_kc over those who have the class."""
    silos = [silo_of(0), silo_of(1, only=(0, 2)), silo_of(2)]
    server, federation = kit.build("fedpg", silos, annotation="labelled", hops=0, alpha=0.0, similarity=-1.0, **SHORT)
    play(server, federation, 1)
    weights = server.counts.float().unsqueeze(-1)
    mean = (weights * server.prototypes[:, :, 0]).sum(0) / weights.sum(0)
    for place in range(3):
        held = server.present[place, :, 0]
        torch.testing.assert_close(server.targets[place, held, 0], mean[held])


def test_the_servers_first_two_rounds_written_out(kit):
    """Uploads to targets: the generator's loss pair by pair under plain descent, then eq. 5 client by client."""
    settings = {**SHORT, "server_epochs": 10, "server_lr": 0.5, "server_optimizer": "sgd", "hop_share": 0.0, "hops": 1}
    server, federation = kit.build(
        "fedpg", [silo_of(client) for client in range(4)], similarity=0.6, alpha=0.3, **settings
    )
    play(server, federation, 0)
    leaves = [part.clone().requires_grad_() for part in server.universal.parameters]
    steps = torch.optim.SGD(leaves, lr=0.5)
    for number in (1, 2):
        federation.at("round", number)
        server.round(federation, number)
        uploads, held, counts = server.prototypes, server.present, server.counts
        centres = torch.stack([uploads[:, c][held[:, c]].mean(0) for c in range(3)])
        cosines = torch.nn.functional.cosine_similarity(centres[:, None], centres[None], dim=-1)
        margin = min(0.5, float((1 - cosines)[~torch.eye(3, dtype=torch.bool)].max()))
        for step in range(11):
            vectors, first, first_bias, second, second_bias = leaves
            universal = ((vectors @ first + first_bias).relu() @ second + second_bias).view(3, 2, -1)
            if step == 10:
                break
            terms = []
            for c in range(3):
                for hop in range(2):  # all classes are there, at both hops
                    near = torch.nn.functional.cosine_similarity(universal[c, hop], uploads[:, :, hop], dim=-1)
                    mine = (near[:, c] - margin)[held[:, c, hop]].exp().sum()
                    rest = [near[:, other][held[:, other, hop]].exp().sum() for other in range(3) if other != c]
                    terms.append(-(mine / (mine + sum(rest))).log())
            steps.zero_grad()
            loss = torch.stack(terms).mean()
            loss.backward()
            steps.step()
            if step in (0, 9):
                name = "generator_loss" if step else "generator_loss_before"
                assert server.log[name] == pytest.approx(loss.item(), rel=1e-4)
        assert server.log["margin"] == pytest.approx(margin, rel=1e-5)
        assert server.log["uploaded_norm"] == pytest.approx(float(uploads[held].norm(dim=1).mean()))
        assert server.log["generated_norm"] == pytest.approx(float(universal.detach().norm(dim=2).mean()), rel=1e-4)
        units = torch.nn.functional.normalize(uploads, dim=-1)
        for name, each in (
            ("uploaded_cosine", torch.stack([units[:, c][held[:, c]].mean(0) for c in range(3)])),
            ("generated_cosine", torch.nn.functional.normalize(universal.detach(), dim=-1).mean(1)),
        ):
            apart = [torch.cosine_similarity(each[a], each[b], dim=0) for a, b in ((0, 1), (0, 2), (1, 2))]
            assert server.log[name] == pytest.approx(float(sum(apart)) / 3, abs=1e-4)
        mixed = groups = 0
        for i in range(4):
            shared = [held[i] & held[j] for j in range(4)]
            near = [
                torch.cosine_similarity(uploads[i][both].flatten(), uploads[j][both].flatten(), dim=0)
                for j, both in enumerate(shared)
            ]
            groups += sum(j == i or float(near[j]) >= 0.6 for j in range(4))
            for c, hop in held[i].nonzero().tolist():
                who = [j for j in range(4) if (j == i or near[j] >= 0.6) and held[j, c, hop]]
                mixed += len(who) > 1
                mean = sum(counts[j, c] * uploads[j, c, hop] for j in who) / sum(counts[j, c] for j in who)
                wanted = 0.3 * universal[c, hop].detach() + 0.7 * mean
                torch.testing.assert_close(server.targets[i, c, hop], wanted, atol=1e-4, rtol=1e-4)
        assert mixed
        assert server.log["similar_clients"] == groups / 4


def test_a_fixed_code_needs_no_other_client(kit):
    """α = 1 with the code: what a client learns does not depend on who else takes part."""
    settings = {**SHORT, "generator": "code", "alpha": 1.0, "norm": 4.0}
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **settings)
    play(server, federation, 3)
    alone_server, alone = kit.build("fedpg", [silo_of(0)], **settings)
    play(alone_server, alone, 3)
    mine, his = weights_of(federation.client(0).model), weights_of(alone.client(0).model)
    assert all(torch.equal(value, his[name]) for name, value in mine.items())
    lengths = server.targets[0][server.present[0]].norm(dim=-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 4.0))


# -- poor clients --------------------------------------------------------------------------------------------------


def test_an_absent_class_receives_nothing(kit):
    silos = [silo_of(0), silo_of(1, only=(1,)), silo_of(2)]
    settings = {**SHORT, "annotation": "labelled"}
    server, federation = kit.build("fedpg", silos, **settings)
    play(server, federation, 4)
    assert server.counts[1, [0, 2]].tolist() == [0, 0]
    assert not server.present[1, [0, 2]].any()
    assert (server.targets[1, [0, 2]] == 0).all()
    assert torch.isfinite(server.targets).all()
    assert all(torch.isfinite(value).all() for weights in weights_in(federation) for value in weights.values())


def test_a_class_that_nobody_has(kit):
    silos = [silo_of(client, only=(0, 2)) for client in range(2)]
    server, federation = kit.build("fedpg", silos, annotation="labelled", **SHORT)
    play(server, federation, 3)
    assert not server.present[:, 1].any()
    assert torch.isfinite(server.targets).all()


def test_nobody_with_training_nodes(kit):
    silos = [replace(silo_of(client), train=np.empty(0, dtype=np.int64)) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    play(server, federation, 3)
    assert server.targets is None


def test_partial_participation_keeps_earlier_prototypes(kit):
    silos = [silo_of(client) for client in range(4)]
    server, federation = kit.build("fedpg", silos, participation=0.5, **SHORT)
    federation.at("setup", 0)
    server.set_up(federation)
    heard: set[int] = set()
    for number in range(1, 5):
        before = server.prototypes.clone()
        federation.at("round", number)
        server.round(federation, number)
        chosen = server.select(federation, number)
        heard |= set(chosen)
        changed = (server.prototypes != before).flatten(1).any(1)
        assert {place for place in range(4) if changed[place]} == set(chosen)
        assert {place for place in range(4) if server.present[place].any()} == heard


def test_similar_clients_by_threshold(kit):
    silos = [silo_of(client) for client in range(3)]
    for threshold, size in ((2.0, 1.0), (-1.0, 3.0)):
        server, federation = kit.build("fedpg", silos, similarity=threshold, **SHORT)
        play(server, federation, 2)
        assert server.log["similar_clients"] == size


@pytest.mark.parametrize(("width", "depth"), [(10**9, 3), (0, 3), (-1, 3), (8, -1)])
def test_client_that_lies_of_its_model_fails_whoever_it_is(width, depth):
    class Lying(InProcess):
        def deliver(self, handler, *rest):
            for client, answer in super().deliver(handler, *rest):
                lie = client == 0 and handler == "hello"
                yield client, encode(HelloReply(width=width, depth=depth)) if lie else answer

    server, federation, _ = assemble(registry.load("fedpg"), {**SHORT, "min_clients": 3}, runtime=Lying)
    federation.at("setup", 0)
    server.set_up(federation)
    assert (server.width, [failure.client for failure in federation.failures]) == (8, [0])
    assert str(width if depth == 3 else depth) in federation.failures[0].reason


def test_uploads_of_another_shape_are_refused(kit):
    silos = [silo_of(client) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    play(server, federation, 1)
    server._start(1, 4)
    federation.client(0)._upload = lambda hops: Client._upload(federation.client(0), 3)
    federation.at("round", 2)
    with pytest.raises(Exception, match="client 0 must send prototypes of shape"):
        server.round(federation, 2)


def test_the_mean_cosine_is_of_different_rows():
    rows = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [-1.0, 0.0]])
    # Of six pairs three are at right angles, one is alike and two are opposite.
    assert mean_cosine(rows) == pytest.approx((1 - 2) / 6)
    assert mean_cosine(rows[:2]) == 0.0
    assert mean_cosine(rows[[0, 2]]) == pytest.approx(1.0)
    assert mean_cosine(rows[:1]) == mean_cosine(rows[:0]) == 0.0


def test_too_few_answers_end_the_round(kit):
    silos = [silo_of(client) for client in range(2)]
    server, federation = kit.build("fedpg", silos, **SHORT)
    play(server, federation, 1)
    federation.client(1).run_epochs = federation.client(1)._steps_towards = lambda *args: 1 / 0
    federation.at("round", 2)
    with pytest.raises(FederationError, match="client 1 failed in 'train'"):
        server.round(federation, 2)
    server.config = server.config.model_copy(update={"min_clients": 1})
    server.round(federation, 2)
    assert server.present[1].any()
