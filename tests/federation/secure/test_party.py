"""What a client refuses: every way in which a coordinator, or another client, could come to see its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphsilo.errors import DisclosureError, MessageError
from graphsilo.federation.codec import encode
from graphsilo.federation.message import Message, sends
from graphsilo.federation.secure import coordinator
from graphsilo.federation.secure.coordinator import SecureSum
from graphsilo.federation.secure.masks import KEY_BYTES
from graphsilo.federation.secure.messages import Came, Confirmed, Post, Roster, raw, row, rows
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.party import Identity, Party, Purpose, Unproved
from kit.secure import DIRECTORY, PURPOSE, Scene, Update, updates

SMALL = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


class Table:
    """Five clients up to a step, with the messages that come next."""

    def __init__(self, *, until: str = "offer", clients: int = 5):
        self.scene = Scene(updates(clients))
        self.made = self.scene.begin()
        self.roster = self.made.roster()
        self.posts: dict[int, Post] = {}
        if until == "offer":
            return
        self.scene._step("share", dict.fromkeys(self.made.clients, self.roster), self.made.take_letters, set())
        self.posts = self.made.make_posts()
        if until == "share":
            return
        self.scene._step("mask", self.posts, self.made.add, set())
        self.came = self.made.close_answers()
        if until == "mask":
            return
        self.scene._step("confirm", dict.fromkeys(self.came.clients, self.came), self.made.confirm, set())
        self.confirmed = self.made.close_confirmations()

    def sum_of(self, client: int) -> Any:
        return self.scene.parties[client].current


def changed(message: Message, **fields: Any) -> Any:
    whole = {spec.name: getattr(message, spec.name) for spec in message.specs()}
    return type(message)(**{**whole, **fields})


def some(roster: Roster, part: slice) -> dict[str, Any]:
    """What a roster says of some of its clients."""
    return {spec.name: getattr(roster, spec.name)[part] for spec in Roster.specs()}


def set_row(tensor: torch.Tensor, place: int, data: bytes) -> torch.Tensor:
    made = tensor.clone()
    made[place] = row(data)
    return made


# -- the roster --------------------------------------------------------------------------------------------------------


def refused_roster(text: str, table: Table, client: int = 0, **fields: Any) -> None:
    with pytest.raises(DisclosureError, match=text):
        table.sum_of(client).share(changed(table.roster, **fields))


def test_keys_that_are_not_signed():
    table = Table()
    keys = raw(table.roster.keys[3])
    refused_roster(
        "the offer of client 3 is not signed by it", table, keys=set_row(table.roster.keys, 3, keys[:-1] + b"\0")
    )
    other = Identity.generate()
    identities = [*table.roster.identities[:3], row(other.proof), table.roster.identities[4]]
    refused_roster("the offer of client 3 is not signed by it", table, identities=identities)
    refused_roster(
        "the offer of client 3 is not signed", table, bits=[*table.roster.bits[:3], 40, table.roster.bits[4]]
    )
    with pytest.raises(MessageError, match="a weight of -1 bits cannot be"):
        table.sum_of(0).share(changed(table.roster, bits=[*table.roster.bits[:3], -1, table.roster.bits[4]]))


def test_keys_of_an_older_sum():
    """Replayed: signed by the client, but for another round; or by this client itself, before."""
    table = Table()
    old = Table()
    later = Purpose("run", 0, 2, "train")
    for client in (0, 3):
        offer = table.scene.parties[client].begin(later, updates(5)[client], encode(updates(5)[client]).data)
        keys = set_row(table.roster.keys, client, raw(offer.keys))
        signatures = set_row(table.roster.signatures, client, raw(offer.signature))
        asked = 1
        refused_roster(f"the offer of client {client} is not signed", table, asked, keys=keys, signatures=signatures)
    mine = old.scene.parties[0]
    before = old.roster
    mine.offer_again()
    with pytest.raises(DisclosureError, match="other keys of client 0 than those that it made for this sum"):
        mine.current.share(before)


def test_a_client_that_is_left_out_or_named_twice():
    table = Table()
    refused_roster("the roster lacks client 0", table, **some(table.roster, slice(1, None)))
    refused_roster("once each, in ascending order", table, clients=[0, 1, 1, 3, 4])
    refused_roster("once each, in ascending order", table, clients=[0, 2, 1, 3, 4])
    with pytest.raises(MessageError, match="the same of every client"):
        table.sum_of(0).share(changed(table.roster, bits=[1]))


def test_one_silo_under_two_numbers(monkeypatch):
    """The coordinator, or a silo, that makes up others to be among; an honest coordinator leaves both out itself."""
    monkeypatch.setattr(coordinator, "Counter", lambda keys: Counter(set(keys)))
    scene = Scene(updates(5), identities=dict.fromkeys((3, 4), Identity.generate()))
    roster = scene.begin().roster()
    with pytest.raises(DisclosureError, match="two clients of the roster have the same key"):
        scene.parties[0].current.share(roster)


def claiming(answers: Mapping[int, Message], bits: int, liar: int = 2) -> Scene:
    """Everybody has made its offer; one says that its weight is of this size, and signs it."""
    scene = Scene(answers)
    scene.begin()
    party = scene.parties[liar]
    assert party._kept is not None
    party._kept = replace(party._kept, bits=bits)
    return scene


def test_a_weight_that_would_leave_nothing_of_the_others():
    """One of 2^30; the others' have a few bits: they name who says so, all of them."""
    scene = claiming(updates(5), 30)
    offers = {client: party.offer_again() for client, party in scene.parties.items()}
    made = SecureSum(Update, PURPOSE, offers, DIRECTORY)
    assert "client 2 says that its weight is up to 2^30" in made.unlike[2]
    assert made.clients == [0, 1, 3, 4]
    everybody = [offers[client] for client in range(5)]  # what a coordinator may send that lets it pass
    roster = Roster(
        clients=list(range(5)), bits=[offer.bits for offer in everybody],
        asked=rows([raw(offer.asked) for offer in everybody], 32),
        keys=rows([raw(offer.keys) for offer in everybody], 96),
        signatures=rows([raw(offer.signature) for offer in everybody], 64),
        identities=[offer.identity for offer in everybody],
    )  # fmt: skip
    for client in (0, 1, 3, 4):
        with pytest.raises(DisclosureError, match=r"client 2 says that its weight is up to 2\^30"):
            scene.parties[client].current.share(roster)
    # The others' sum has all its digits.
    assert scene.run(made=made).num_samples == 1 + 11 + 31 + 41


def test_one_that_was_asked_something_else():
    """With class weights of 0, say: the sum is that of the others."""
    scene = Scene(updates(5))
    offers = {
        client: scene.parties[client].begin(PURPOSE, answer, encode(answer).data, bytes(31) + bytes([client == 3]))
        for client, answer in scene.answers.items()
    }
    roster = SecureSum(Update, PURPOSE, offers, DIRECTORY).roster()
    for client in (0, 1, 2, 4):
        with pytest.raises(DisclosureError, match="client 3 was asked something else than this one in the run"):
            scene.parties[client].current.share(roster)
    asked = set_row(roster.asked, 3, bytes(32))  # nor can the coordinator say otherwise
    with pytest.raises(DisclosureError, match="the offer of client 3 is not signed by it"):
        scene.parties[0].current.share(changed(roster, asked=asked))


def test_nothing_is_left_of_a_roster_that_was_refused():
    """The second one is looked at as if it were the first, and what it lacks is missing."""
    table = Table()
    refused_roster("the offer of client 4 is not signed", table, bits=[*table.roster.bits[:4], 11])
    mine = table.sum_of(0)
    mine.share(Roster(**some(table.roster, slice(4))))
    assert sorted(mine._public) == sorted(mine._keys_of) == [0, 1, 2, 3]


class Kit:
    """Knows who is who."""

    def __init__(self, identities: dict[int, Identity]):
        self.proofs = {client: identity.proof for client, identity in identities.items()}

    def key_of(self, client: int, identity: bytes) -> Any:
        if self.proofs.get(client) != identity:
            raise DisclosureError(f"client {client} is not of this federation.")
        return Unproved().key_of(client, identity)


def test_a_client_that_is_not_of_the_federation():
    answers = updates(5)
    identities = {client: Identity.generate() for client in answers}
    kit = Kit({client: identity for client, identity in identities.items() if client != 4})
    parties = {client: Party(client, identities[client], kit, OpenedSums()) for client in answers}
    roster = Scene(answers, parties=parties).begin().roster()
    with pytest.raises(DisclosureError, match="client 4 is not of this federation"):
        parties[0].current.share(roster)
    with pytest.raises(DisclosureError, match="client 2 has no key to sign with"):
        Unproved().key_of(2, b"short")


@pytest.mark.parametrize("clients", [1, 2])
def test_sums_of_too_few(clients):
    table = Table(clients=3)
    refused_roster(
        f"a secure sum of {clients} silos was asked for; this one takes part in sums of 3",
        table,
        **some(table.roster, slice(clients)),
    )


def test_the_owner_wants_more():
    answers = updates(4)
    parties = {0: Party(0, Identity.generate(), DIRECTORY, OpenedSums(), least=5)}
    scene = Scene(answers, parties=parties)
    made = scene.begin()
    with pytest.raises(
        DisclosureError, match="a secure sum of 4 silos was asked for; this one takes part in sums of 5"
    ):
        parties[0].current.share(made.roster())


def test_points_of_small_order():
    """A client whose public keys make everybody's secret known: refused by those it is a peer of."""
    for start in (0, KEY_BYTES):
        table = Table()
        cheat = table.scene.parties[4].current
        keys = bytearray(cheat._keys)
        keys[start : start + KEY_BYTES] = SMALL
        from graphsilo.federation.secure.party import encode_offer

        layout = cheat._kept.layout.digest
        signed = encode_offer(PURPOSE, layout, 4, cheat._kept.bits, cheat._kept.asked, bytes(keys))
        signature = table.scene.parties[4].identity.key.sign(signed)
        roster = changed(
            table.roster, keys=set_row(table.roster.keys, 4, bytes(keys)),
            signatures=set_row(table.roster.signatures, 4, signature),
        )  # fmt: skip
        if start == KEY_BYTES:  # letters are the first that the key is needed for
            with pytest.raises(DisclosureError, match="point of small order"):
                table.sum_of(0).share(roster)
            continue
        posts: dict[int, dict[int, bytes]] = {client: {} for client in range(4)}
        marks: dict[int, dict[int, bytes]] = {client: {} for client in range(4)}
        for client in range(4):
            letters = table.sum_of(client).share(roster)
            for peer, letter, marked in zip(letters.clients, letters.letters, letters.marks, strict=True):
                if peer < 4:
                    posts[peer][client], marks[peer][client] = raw(letter), raw(marked)
        post = Post(present=[0, 1, 2, 3], clients=[1, 2, 3], letters=rows(list(posts[0].values()), 148),
                    marks=rows(list(marks[0].values()), 32))  # fmt: skip
        table.sum_of(0).mask(post)  # where the cheat is gone, its key is not needed
        # where it is there, its letter is wanted and its key is refused
        other = changed(post, present=[0, 1, 2, 3, 4], clients=[1, 2, 3, 4],
                        letters=rows([*posts[0].values(), bytes(148)], 148),
                        marks=rows([*marks[0].values(), bytes(32)], 32))  # fmt: skip
        with pytest.raises(DisclosureError, match=r"taken once, in order"):
            table.sum_of(0).mask(other)


# -- letters -----------------------------------------------------------------------------------------------------------


def refused_post(text: str, table: Table, **fields: Any) -> None:
    with pytest.raises(DisclosureError, match=text):
        table.sum_of(0).mask(changed(table.posts[0], **fields))


def test_letters_that_were_changed_or_are_anothers():
    table = Table(until="share")
    letters = table.posts[0].letters
    refused_post("what client 1 sent cannot be read", table, letters=letters ^ row(b"\1" + bytes(147)))
    refused_post("what client 1 sent cannot be read", table, letters=letters.flip(0))
    refused_post("what client 1 sent cannot be read", table, letters=table.posts[1].letters)


def test_its_own_share_returned():
    table = Table(until="share")
    own = rows([bytes(148), *map(raw, table.posts[0].letters)], 148)
    marks = rows([bytes(32), *map(raw, table.posts[0].marks)], 32)
    refused_post("was sent a letter as if it were its own", table, clients=[0, 1, 2, 3, 4], letters=own, marks=marks)


def test_shares_that_are_not_those_that_were_marked():
    """Who took them would be named for what another has done."""
    table = Table(until="share")
    refused_post("the shares that client 1 sent are others", table, marks=table.posts[0].marks.flip(0))
    refused_post("the shares that client 1 sent are others", table, marks=table.posts[0].marks ^ 1)


def test_letters_that_are_missing():
    table = Table(until="share")
    refused_post("not every peer's letter came", table, clients=[1, 2, 3], letters=table.posts[0].letters[:3],
                 marks=table.posts[0].marks[:3])  # fmt: skip
    refused_post("3 of 5 clients have shared their secrets; this silo goes on with 4 or more", table,
                 present=[0, 1, 2], clients=[1, 2], letters=table.posts[0].letters[:2],
                 marks=table.posts[0].marks[:2])  # fmt: skip
    refused_post("not in the roster, or none of this one", table, present=[1, 2, 3, 4])
    refused_post("not in the roster", table, present=[0, 1, 2, 3, 4, 9])


# -- who came ----------------------------------------------------------------------------------------------------------


def test_two_lists_of_who_came():
    """With the second, shares of the other secret would be asked for: never both of one client."""
    table = Table(until="mask")
    mine = table.sum_of(0)
    first = mine.confirm(table.came)
    assert torch.equal(mine.confirm(table.came).signature, first.signature)
    with pytest.raises(DisclosureError, match="client 0 was shown two lists"):
        mine.confirm(Came(clients=[0, 1, 2, 3]))


def test_two_lists_after_opening():
    table = Table(until="confirm")
    mine = table.sum_of(0)
    mine.open(table.confirmed)
    with pytest.raises(DisclosureError, match="was shown two lists"):
        mine.confirm(Came(clients=[0, 1, 2, 3]))
    with pytest.raises(DisclosureError, match="every step is taken once"):
        mine.open(table.confirmed)


def test_lists_of_too_few_or_of_strangers():
    table = Table(until="mask")
    for clients, text in (
        ([0, 1, 2], "3 of 5 clients are in the sum; this silo goes on with 4"),
        ([1, 2, 3, 4], "none of this one"),
        ([0, 1, 2, 3, 7], "shared no secrets"),
        ([0, 0, 1, 2, 3], "once each"),
    ):
        with pytest.raises(DisclosureError, match=text):
            table.sum_of(0).confirm(Came(clients=clients))


def test_two_lists_among_the_others():
    """A coordinator that shows one half this list and the other half that one gets no half to open."""
    table = Table(until="mask")
    shorter = Came(clients=[0, 1, 2, 3])
    signatures = {client: table.sum_of(client).confirm(shorter) for client in (0, 1, 2)}
    signatures |= {client: table.sum_of(client).confirm(table.came) for client in (3, 4)}
    raws = [raw(one.signature) for one in signatures.values()]
    with pytest.raises(DisclosureError, match="the confirmation of client 3 is not signed by it"):
        table.sum_of(0).open(Confirmed(clients=[0, 1, 2, 3], signatures=rows(raws[:4], 64)))
    with pytest.raises(DisclosureError, match="3 of 5 clients have confirmed"):
        table.sum_of(0).open(Confirmed(clients=[0, 1, 2], signatures=rows(raws[:3], 64)))


def test_confirmations_that_are_none():
    table = Table(until="confirm")
    good = table.confirmed
    for fields, text in (
        ({"signatures": good.signatures ^ 1}, "the confirmation of client 0 is not signed by it"),
        ({"signatures": good.signatures.flip(0)}, "is not signed by it"),
        ({"clients": good.clients[:3], "signatures": good.signatures[:3]}, "3 of 5 clients have confirmed who"),
        ({"clients": [0, 1, 2, 9]}, "clients that are not on it"),
        ({"clients": [0, 0, 1, 2]}, "once each"),
        ({"clients": [0, 1, 2]}, "clients that are not on it"),
    ):
        with pytest.raises(DisclosureError, match=text):
            table.sum_of(0).open(changed(good, **fields))
    table.sum_of(0).open(good)


def test_an_opening_holds_one_share_of_each():
    scene = Scene(updates(5))
    scene.run({"mask": {3}})
    for step, holder, opening in scene.sent:
        if step == "open":
            assert (opening.came, opening.missing) == ([0, 1, 2, 4], [3]), holder
            assert len(opening.own) == 4
            assert len(opening.keys) == 1


def test_what_opened_a_sum_is_forgotten():
    table = Table(until="confirm")
    mine = table.sum_of(0)
    mine.open(table.confirmed)
    assert not mine._shares
    assert not any((mine._masking, mine._letters, mine._seed))


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["offer", "share", "mask", "confirm"])
def test_steps_out_of_order(until):
    table = Table(until=until)
    mine = table.sum_of(0)
    none = Post(present=[], clients=[], letters=rows([], 148), marks=rows([], 32))
    messages = {
        "share": table.roster, "mask": table.posts.get(0, none),
        "confirm": Came(clients=[0, 1, 2, 3, 4]), "open": Confirmed(clients=[], signatures=rows([], 64)),
    }  # fmt: skip
    expected = {"offer": "share", "share": "mask", "mask": "confirm", "confirm": "open"}[until]
    for step, message in messages.items():
        if step != expected and not (until == "confirm" and step == "confirm"):
            with pytest.raises(DisclosureError, match="every step is taken once, in order"):
                getattr(mine, step)(message)


def test_no_sum_without_an_answer():
    party = Party(0, Identity.generate(), DIRECTORY, OpenedSums())
    for ask in (lambda: party.current, party.offer_again, lambda: party.kept):
        with pytest.raises(DisclosureError, match=r"client 0 (takes part in no sum|has no answer)"):
            ask()


# -- the same answer again ---------------------------------------------------------------------------------------------


def records(folder, clients: int) -> dict[int, OpenedSums]:
    return {client: OpenedSums(folder / f"{client}.sums") for client in range(clients)}


def test_the_same_answer_is_not_opened_with_other_silos(tmp_path):
    """The coordinator goes back to its checkpoint, and leaves one out: training is the same, and the difference of both
    sums would be that one's answer. Refused after a restart of the sites, in another round and in another run."""
    answers = updates(5)
    identities = {client: Identity.generate() for client in answers}

    def scene(clients) -> Scene:
        return Scene({client: answers[client] for client in clients}, records(tmp_path, 5), identities)

    scene(range(5)).run()
    for purpose in (PURPOSE, Purpose("run", 0, 9, "train"), Purpose("later", 3, 1, "train")):
        fewer = scene([0, 1, 2, 3])
        with pytest.raises(DisclosureError, match="this answer was opened before in a sum with other silos"):
            fewer.run(made=fewer.begin(purpose))
        assert not [one for one in fewer.sent if one[0] == "mask"]  # not even masked
        # One that drops out comes to the same; those who are left see it before they open.
        fewer = scene(range(5))
        with pytest.raises(DisclosureError, match="in a sum with other silos"):
            fewer.run({"mask": {2}}, made=fewer.begin(purpose))
        assert not [one for one in fewer.sent if one[0] == "open"]
    assert scene(range(5)).run().num_samples == 1 + 11 + 21 + 31 + 41  # the same sum may be asked for again


def test_an_answer_a_little_off_is_not_opened_with_other_silos(tmp_path):
    """Another answer to whatever other question: the difference would be what client 3 sent, but for what was moved."""
    answers = dict(updates(4))
    identities = {client: Identity.generate() for client in answers}

    def scene(answers: Mapping[int, Message]) -> Scene:
        return Scene(answers, records(tmp_path, 4), identities, "as it was")

    scene(answers).run()
    moved = {
        client: Update(weights={"w": answer.weights["w"] + 1e-6}, num_samples=answer.num_samples)
        for client, answer in answers.items()
    }
    for purpose in (PURPOSE, Purpose("run", 0, 9, "train"), Purpose("later", 3, 1, "statistics")):
        without = scene({client: answer for client, answer in moved.items() if client != 3})
        with pytest.raises(DisclosureError, match="these data were opened before in a sum with other silos"):
            without.run(made=without.begin(purpose))
        assert not [one for one in without.sent if one[0] == "mask"]
    assert scene(moved).run().num_samples == 1 + 11 + 21 + 31  # of all of them, as often as one likes


def test_three_sums_of_which_each_two_differ_by_many():
    """{0, 1, 2, 3} and {4, 5, 6} less {0, 1, 2, 4, 5, 6} would be client 3 alone, and no silo is in all of them."""
    answers = updates(7)
    parties = Scene(answers, data="d").parties

    def scene(*clients: int) -> Scene:
        return Scene({client: answers[client] for client in clients}, parties={one: parties[one] for one in clients})

    scene(0, 1, 2, 3).run()
    scene(4, 5, 6).run()
    for number, client in enumerate(answers):  # asked anew, with other answers
        answers[client] = Update(weights={"w": torch.full((7,), float(number))}, num_samples=1.0)
    combined = scene(0, 1, 2, 4, 5, 6)
    with pytest.raises(DisclosureError, match=r"these data were opened .* \(3 are new, 1 are not there any more\)"):
        combined.run()
    assert not [one for one in combined.sent if one[0] == "mask"]


class Count(Message):
    clients: int = sends("counts", known=True)


class Share(Message):
    nodes: float = sends("counts")


def test_counts_that_are_on_every_card_may_be_summed_with_anybody(tmp_path):
    answers = {client: Count(clients=7) for client in range(4)}
    kept = records(tmp_path, 4)
    parties = Scene(answers, kept).parties
    for clients in ((0, 1, 2, 3), (0, 1, 2)):
        chosen = {client: answers[client] for client in clients}
        scene = Scene(chosen, parties={client: parties[client] for client in clients})
        assert scene.run().clients == 7 * len(clients)
    for record in kept.values():  # offers are noted as all are, and none of them waits
        lines = record.path.read_text()
        assert lines.count("offered") == lines.count("freed") > 0
        assert '"silos"' not in lines


def test_such_counts_are_summed_whatever_was_asked_before(tmp_path):
    """That a model was taken, by one that was away when its sums were asked for. But that there was an answer at all
    may say something of one that was asked otherwise: it counts as an offer that was never opened."""
    kept = records(tmp_path, 4)
    scene = Scene({client: Count(clients=1) for client in range(4)}, kept)
    offers = {
        client: scene.parties[client].begin(PURPOSE, answer, encode(answer).data, bytes(31) + bytes([client == 3]))
        for client, answer in scene.answers.items()
    }
    assert scene.run(made=SecureSum(Count, PURPOSE, offers, DIRECTORY)).clients == 4
    for record in kept.values():
        lines = record.path.read_text()
        assert lines.count("offered") > lines.count("freed")


def test_what_depends_on_a_question_is_no_such_count(tmp_path):
    """As how many nodes a generator of the coordinator's would add."""
    parties = Scene({client: Share(nodes=0.0) for client in range(4)}, records(tmp_path, 4), data="d").parties
    for clients, refused in (((0, 1, 2, 3), False), ((0, 1, 2), True)):
        scene = Scene({client: Share(nodes=7.0 + len(clients)) for client in clients},
                      parties={client: parties[client] for client in clients})  # fmt: skip
        with pytest.raises(DisclosureError, match="these data were opened") if refused else nullcontext():
            scene.run()


def test_an_answer_that_waits_is_offered_again_with_fresh_keys():
    """A sum that could not be opened: nobody makes another answer."""
    scene = Scene(updates(5))
    first = scene.begin()
    left = {client: scene.parties[client].offer_again() for client in (0, 1, 2)}
    second = SecureSum(Update, PURPOSE, left, DIRECTORY)
    assert not set(first._keys.values()) & set(second._keys.values())
    total = scene.run(made=second)
    assert total.num_samples == 1 + 11 + 21
    assert torch.equal(total.weights["w"], Scene({c: updates(5)[c] for c in (0, 1, 2)}).run().weights["w"])


def test_letters_go_to_peers():
    table = Table()
    letters = table.sum_of(0).share(table.roster)
    assert letters.clients == [1, 2, 3, 4]
    with pytest.raises(MessageError, match="for others than its peers"):
        table.made.take_letters(0, changed(letters, clients=[0, 2, 3, 4]))
    assert isinstance(table.roster, Roster)
