"""Whole sums: every set of clients that drop out, at every step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from graphsilo.errors import DisclosureError, MessageError
from graphsilo.federation.secure import masks, peers, shamir
from graphsilo.federation.secure.coordinator import SecureSum, SecureSumFailed
from graphsilo.federation.secure.fixed import Layout
from graphsilo.federation.secure.masks import Masks
from graphsilo.federation.secure.messages import Opening, raw, row
from graphsilo.federation.secure.party import encode_offer
from graphsilo.federation.secure.peers import Peers, confirmations
from kit.secure import DIRECTORY, PURPOSE, STEPS, Scene, Update, reference, updates


def check(parties: int, gone: dict[str, set[int]]) -> None:
    """The sum is that of the integers, or it fails and nothing was opened; and it fails where it has to only."""
    answers = updates(parties)
    scene = Scene(answers)
    expected = Peers.of(parties)
    everybody = set(range(parties))
    shared = everybody - gone.get("share", set())
    masked = shared - gone.get("mask", set())
    confirmed = masked - gone.get("confirm", set())
    opened = confirmed - gone.get("open", set())
    before = len(shared) >= expected.least and len(masked) >= expected.least
    before = before and len(confirmed) >= confirmations(parties)
    enough = before and _recoverable(expected, shared, masked, opened)
    if not enough:
        with pytest.raises(SecureSumFailed):
            scene.run(gone)
        if not before:
            assert not [one for one in scene.sent if isinstance(one[2], Opening)]
        return
    total = scene.run(gone)
    assert set(scene.made._came) == masked
    words = reference(answers, masked, scene.made.bits, parties)
    behind = 50 - scene.made.bits - (parties - 1).bit_length()
    assert (total.weights["w"] * 2.0**behind).tolist() == [float(word) for word in words]
    assert total.num_samples == sum(answers[client].num_samples for client in masked)
    for _, holder, opening in (one for one in scene.sent if isinstance(one[2], Opening)):
        assert not set(opening.came) & set(opening.missing)
        assert set(opening.came) | set(opening.missing) <= {*expected.of_place(holder), holder}


def _recoverable(expected: Peers, shared: set[int], masked: set[int], opened: set[int]) -> bool:
    for client in shared:
        holders = {*expected.of_place(client), client} & opened
        near = set(expected.of_place(client)) & masked
        if len(holders) < expected.threshold and (client in masked or near):
            return False
    return True


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("parties", [3, 4, *(pytest.param(many, marks=pytest.mark.slow) for many in (5, 6))])
def test_every_set_of_clients_that_drop_out(parties, step):
    for size in range(parties + 1):
        for gone in itertools.combinations(range(parties), size):
            check(parties, {step: set(gone)})


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(parties=st.integers(3, 12), data=st.data())
def test_clients_that_drop_out_at_several_steps(parties, data):
    tolerated = parties - confirmations(parties)
    order = data.draw(st.permutations(range(parties)))[: data.draw(st.integers(0, min(parties, tolerated + 1)))]
    gone: dict[str, set[int]] = {}
    for client in order:
        gone.setdefault(data.draw(st.sampled_from(STEPS)), set()).add(client)
    check(parties, gone)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_clients_of_a_sparse_graph_that_drop_out(step, monkeypatch):
    """As above among the neighbours of a circle, with few clients so that all sets of one and two are tried."""
    sparse = Peers.of
    monkeypatch.setattr(peers.Peers, "of", classmethod(lambda cls, parties: sparse(parties, all_peers=3)))
    assert peers.Peers.of(10) == Peers(parties=10, degree=6, threshold=4, least=9)
    for size in (0, 1, 2):
        for gone in itertools.islice(itertools.combinations(range(10), size), 0, 45, 4):
            check(10, {step: set(gone)})


def test_forty_clients_mask_with_eighteen_each():
    answers = updates(40)
    scene = Scene(answers)
    total = scene.run({"mask": {3, 17, 18, 39}})
    assert scene.made.peers.degree == 18
    letters = [message for step, _, message in scene.sent if step == "share"]
    assert {len(one.clients) for one in letters} == {18}
    left = set(range(40)) - {3, 17, 18, 39}
    words = reference(answers, left, scene.made.bits, 40)
    assert (total.weights["w"] * 2.0 ** (50 - scene.made.bits - 6)).tolist() == [float(word) for word in words]


def test_two_clients_make_no_sum():
    with pytest.raises(SecureSumFailed, match="needs the answers of 3 clients or more"):
        Scene(updates(2)).run()


def test_three_clients_do_without_anybody_missing():
    assert Scene(updates(3)).run().num_samples == 1 + 11 + 21
    with pytest.raises(SecureSumFailed, match="2 of 3 clients sent their masked answers; the sum takes 3"):
        Scene(updates(3)).run({"mask": {1}})


def test_an_answer_of_another_shape_is_left_out():
    answers = dict(updates(5))
    answers[3] = Update(weights={"w": torch.zeros(8)}, num_samples=1.0)
    scene = Scene(answers)
    made = scene.begin()
    assert list(made.unlike) == [3]
    assert "are not those of most others" in made.unlike[3]
    assert scene.run(made=made).num_samples == 1 + 11 + 21 + 41


def test_where_as_many_send_one_shape_as_another_nobody_is_right():
    answers = dict(updates(6))
    for client in (0, 2, 4):
        answers[client] = Update(weights={"v": torch.zeros(7)}, num_samples=1.0)
    made = Scene(answers).begin()
    assert sorted(made.unlike) == list(range(6))
    with pytest.raises(SecureSumFailed):
        made.require()


def test_a_masked_answer_of_another_length_counts_as_none():
    scene = Scene(updates(4))
    made = scene.begin()
    scene._step("share", dict.fromkeys(made.clients, made.roster()), made.take_letters, set())
    posts = made.make_posts()
    masked = scene.parties[0].current.mask(posts[0])
    with pytest.raises(MessageError, match="another length"):
        made.add(0, type(masked)(words=masked.words[:-8]))
    made.add(0, masked)
    with pytest.raises(MessageError, match="another length"):
        made.add(0, masked)


def opened(scene: Scene, change: Callable[[int, Opening], Opening]) -> SecureSum[Any]:
    """A sum of five, of whom the last drops out; what each sends to open it may be changed. Who is refused is noted."""
    made = scene.begin()
    scene._step("share", dict.fromkeys(made.clients, made.roster()), made.take_letters, set())
    scene._step("mask", made.make_posts(), made.add, {4})
    came = made.close_answers()
    scene._step("confirm", dict.fromkeys(came.clients, came), made.confirm, {4})
    confirmed = made.close_confirmations()
    for client in came.clients:
        made.take_opening(client, change(client, scene.parties[client].current.open(confirmed)))
    return made


@pytest.mark.parametrize("field", ["own", "keys"])
def test_who_sends_a_wrong_share_is_named(field):
    def lie(client: int, opening: Opening) -> Opening:
        fields = {name: getattr(opening, name) for name in ("came", "own", "missing", "keys")}
        if client == 1:
            fields[field] = fields[field].clone()
            fields[field][0, -1] ^= 1
        return Opening(**fields)

    other = 4 if field == "keys" else 0
    with pytest.raises(MessageError, match=f"client 1 has sent a wrong share: .* that client {other} gave it"):
        opened(Scene(updates(5)), lie)


@pytest.mark.parametrize("part", [0, 1])
def test_who_gives_out_shares_that_do_not_fit_together_is_named(part, monkeypatch):
    """Shares of one secret for some peers and of another for others: each is the one that was given."""
    scene = Scene(updates(5))
    made = scene.begin()
    cheat = 4 if part == 0 else 2
    split, calls = shamir.split, []

    def two(secret, places, threshold, **given):
        calls.append(secret)
        shares = split(secret, places, threshold, **given)
        if len(calls) == part + 1:
            other = split(bytes(32), places, threshold, **given)
            shares = {place: other[place] if place == 1 else share for place, share in shares.items()}
        return shares

    for client in made.clients:
        with monkeypatch.context() as patch:
            if client == cheat:
                patch.setattr(shamir, "split", two)
            made.take_letters(client, scene.parties[client].current.share(made.roster()))
    scene._step("mask", made.make_posts(), made.add, {4})
    scene._step("confirm", dict.fromkeys(range(4), made.close_answers()), made.confirm, {4})
    scene._step("open", dict.fromkeys(range(4), made.close_confirmations()), made.take_opening, {4})
    with pytest.raises(SecureSumFailed, match=f"client {cheat} has given out shares of its"):
        made.result()


def test_shares_of_others_are_refused():
    scene = Scene(updates(4))
    scene.run()
    opening = next(message for step, _, message in scene.sent if step == "open")
    for fields in ({"came": opening.came[:-1], "own": opening.own[:-1]}, {"missing": [2], "keys": opening.own[:1]}):
        whole = {"came": opening.came, "own": opening.own, "missing": opening.missing, "keys": opening.keys}
        with pytest.raises(MessageError, match="other shares than those that it holds"):
            scene.made.take_opening(0, Opening(**{**whole, **fields}))


def test_shares_without_those_that_they_are_of_are_refused():
    """Lists that do not fit together come from nobody honest, and must not end the coordinator."""
    scene = Scene(updates(4))
    scene.run({"mask": {3}})
    opening = next(message for step, _, message in scene.sent if step == "open")
    for cut in ({"own": opening.own[:-1]}, {"own": torch.cat([opening.own, opening.own[:1]])}, {"keys": opening.own}):
        whole = {"came": opening.came, "own": opening.own, "missing": opening.missing, "keys": opening.keys}
        with pytest.raises(MessageError, match="other shares than those that it holds"):
            scene.made.take_opening(0, Opening(**{**whole, **cut}))
    made = Scene(updates(4)).begin()
    letters = next(message for step, _, message in scene.sent if step == "share")
    with pytest.raises(MessageError, match="shares for others than its peers"):
        made.take_letters(0, replace(letters, letters=letters.letters[:-1], marks=letters.marks[:-1]))


SMALL_ORDER = bytes([1]) + bytes(31)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"bits": 39}, "client 2's weights of 39 bits are too large for a secure sum of 5 clients"),
        ({"keys": lambda keys, _: SMALL_ORDER + keys[32:]}, "point of small order"),
        ({"keys": lambda keys, _: keys[:32] + SMALL_ORDER + keys[64:]}, "point of small order"),
        ({"keys": lambda keys, _: keys[:32] * 2 + keys[64:]}, "a key that is offered twice"),
        ({"keys": lambda keys, other: other[:32] + keys[32:]}, "a key that is offered twice"),
        ({"keys": lambda keys, other: other[96:] + keys[32:]}, "a key that is offered twice"),
        ({"keys": lambda keys, other: keys[:32] + other[96:] + keys[64:]}, "a key that is offered twice"),
        ({"unsigned": True, "keys": lambda keys, other: other[:64] + keys[64:]}, "is not signed by it"),
        ({"unsigned": True, "identity": True}, "is not signed by it"),
    ],
    ids=[
        "bits", "small order, masks", "small order, letters", "one key for both", "another's key",
        "another's signing key, masks", "another's signing key, letters", "another's keys, not signed",
        "another's identity",
    ],
)  # fmt: skip
def test_an_offer_that_the_others_would_refuse_is_left_out_by_name(lie, reason):
    """Signed as it should be, by one that lies: the sum of the others is opened."""
    scene = Scene(updates(5))
    scene.begin()
    offers = {client: message for step, client, message in scene.sent if step == "offer"}
    other = raw(offers[4].keys) + raw(offers[4].identity)
    keys = lie.get("keys", lambda keys, _: keys)(raw(offers[2].keys), other)
    bits = lie.get("bits", offers[2].bits)
    layout = Layout.read(Update, offers[2].layout).digest
    signature = scene.parties[2].identity.key.sign(encode_offer(PURPOSE, layout, 2, bits, raw(offers[2].asked), keys))
    if lie.get("unsigned"):
        signature = bytes(64)
    if lie.get("identity"):
        offers[2] = replace(offers[2], identity=offers[4].identity)
    offers[2] = replace(offers[2], keys=row(keys), bits=bits, signature=row(signature))
    made = SecureSum(Update, PURPOSE, offers, DIRECTORY)
    assert reason in made.unlike[2]
    fresh = keys[:32] == other[:32] and not lie.get("unsigned")
    assert set(made.unlike) == ({2, 4} if fresh else {2})  # of two with one fresh key nobody knows whose it is
    scene.run(made=made)
    assert set(made._came) == set(range(5)) - set(made.unlike)


# -- what the coordinator sees -----------------------------------------------------------------------------------------

FALSE_ALARM = 1e-6
"""How often the tests below fail although all is well."""


def uniform(data: np.ndarray) -> bool:
    """Whether bytes look drawn uniformly: chi-squared over the 256 values."""
    counts = np.bincount(data.view(np.uint8), minlength=256)
    wanted = counts.sum() / 256
    return float(((counts - wanted) ** 2 / wanted).sum()) < chi2.ppf(1 - FALSE_ALARM, 255)


@pytest.mark.parametrize("size", [0.0, 1.0, -4096.0])
def test_what_the_coordinator_sees_of_single_answers_is_uniform(size):
    """Masked answers, even without their own masks, which it learns of those that are in the sum; and sums of all but
    one. Only the sum of all is the answer."""
    answers = {client: Update(weights={"w": torch.full((20_000,), size)}, num_samples=3.0) for client in range(4)}
    scene = Scene(answers)
    scene.run()
    made, seen = scene.made, {}
    for step, client, message in scene.sent:
        if step == "mask":
            words = message.words.numpy().view("<u8").copy()
            assert uniform(words)
            seed = scene.secrets[client][2]
            Masks([(masks.own_key(seed, made._roster, client), False)]).apply(words[:65536])
            seen[client] = words
            assert uniform(words)
    for left_out in seen:
        assert uniform(np.sum([words for client, words in seen.items() if client != left_out], axis=0, dtype=np.uint64))
    total = np.sum(list(seen.values()), axis=0, dtype=np.uint64)
    assert not uniform(total)


def test_two_sums_of_the_same_answers_have_other_messages_and_the_same_result():
    answers = updates(4)
    first, second = Scene(answers), Scene(answers)
    assert torch.equal(first.run().weights["w"], second.run().weights["w"])
    for (step, client, mine), (_, _, theirs) in zip(first.sent, second.sent, strict=True):
        if step == "mask":
            assert not torch.equal(mine.words, theirs.words), client


def test_no_secret_is_in_any_message():
    scene = Scene(updates(5, 30))
    scene.run({"mask": {4}})
    wire = [
        raw(value)
        for _, _, message in scene.sent
        for spec in message.specs()
        if spec.form != "plain"
        for value in ([getattr(message, spec.name)] if spec.form == "tensor" else getattr(message, spec.name))
    ]
    assert len(wire) > 50
    plain = [answer.weights["w"].numpy().tobytes()[:16] for answer in scene.answers.values()]
    for secrets in (*scene.secrets.values(), plain):
        for secret in secrets:
            # A share is the value of a polynomial, and no part of it.
            assert not any(secret in data or secret[:16] in data for data in wire)


def test_a_client_that_is_not_in_the_sum_is_asked_nothing():
    scene = Scene(updates(5))
    scene.run({"mask": {2}})
    assert not [one for one in scene.sent if one[1] == 2 and one[0] in ("confirm, asked", "open, asked")]
    with pytest.raises(DisclosureError, match="where 'share' was the last step of this sum"):
        scene.parties[2].current.confirm(type(scene.made.close_answers())(clients=[0, 1, 3, 4]))
