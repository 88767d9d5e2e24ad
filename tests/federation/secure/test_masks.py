"""Keys and masks: published vectors, and what each key is bound to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphsilo.errors import DisclosureError
from graphsilo.federation.secure import masks
from graphsilo.federation.secure.fixed import BLOCK
from graphsilo.federation.secure.masks import Masks

BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
ROSTER = bytes(range(32))


def test_agreement_of_rfc_7748():
    # section 6.1: the public key of Bob, and what he and Alice have in common
    assert masks.public_key(BOB) == BOB_PUBLIC
    common = X25519PrivateKey.from_private_bytes(BOB).exchange(X25519PublicKey.from_public_bytes(ALICE_PUBLIC))
    assert common.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert masks.agree_key(BOB, ALICE_PUBLIC, b"info") == masks.derive_key(common, b"info")


def test_derivation_of_rfc_5869():
    # appendix A.3: no salt, no info; the first 32 of 42 bytes
    wanted = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert masks.derive_key(b"\x0b" * 22, b"").hex() == wanted


def test_masks_of_nist_sp_800_38a():
    # F.5.5, CTR-AES256, with the counter that the vector begins with; ours begins at 0
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    begin = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    stream = Cipher(algorithms.AES256(key), modes.CTR(begin)).encryptor().update(bytes(16))
    assert stream.hex() == "0bdf7df1591716335e9a8b15c860c502"
    ours = np.zeros(2, dtype=np.uint64)
    Masks([(key, True)]).apply(ours)
    assert ours.tobytes() == Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(16))


@pytest.mark.parametrize("size", [1, 5, BLOCK, BLOCK + 1, 3 * BLOCK - 7])
def test_masks_go_on_from_block_to_block_and_cancel(size):
    words = np.arange(size, dtype=np.uint64)
    masked = words.copy()
    keys = [(masks.draw_secret(), True), (masks.draw_secret(), False)]
    for sign in (True, False):
        streams = Masks([(key, add is sign) for key, add in keys])
        for start in range(0, size, BLOCK):
            streams.apply(masked[start : start + BLOCK])
        assert (masked == words).all() is np.bool_(not sign) or size < 3
    whole = Cipher(algorithms.AES256(keys[0][0]), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    once = np.zeros(size, dtype=np.uint64)
    streams = Masks(keys[:1])
    for start in range(0, size, BLOCK):
        streams.apply(once[start : start + BLOCK])
    assert once.tobytes() == whole


def test_two_clients_have_one_mask_which_one_of_them_adds():
    a, b = masks.draw_secret(), masks.draw_secret()
    assert masks.pair_key(a, masks.public_key(b), ROSTER, 3, 8) == masks.pair_key(b, masks.public_key(a), ROSTER, 8, 3)
    assert masks.adds(3, 8)
    assert not masks.adds(8, 3)


def test_every_key_is_of_one_purpose_sum_and_pair():
    a, b = masks.draw_secret(), masks.public_key(masks.draw_secret())
    keys = [
        masks.pair_key(a, b, ROSTER, 1, 2), masks.pair_key(a, b, bytes(32), 1, 2), masks.pair_key(a, b, ROSTER, 1, 3),
        masks.letter_key(a, b, ROSTER, 1, 2), masks.letter_key(a, b, ROSTER, 2, 1), masks.own_key(a, ROSTER, 1),
        masks.own_key(a, ROSTER, 2), masks.own_key(a, bytes(32), 1), masks.digest("seed", a),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_labels_cannot_be_shifted_into_each_other():
    parts = [b"ab", b"c", b"a", b"bc", 1, 2, 258]
    labels = {masks.label("x", *chosen) for chosen in itertools.permutations(parts, 2)}
    assert len(labels) == 7 * 6
    assert masks.label("x", b"yz") != masks.label("xy", b"z")


def test_a_letter_is_for_one_receiver_in_one_sum():
    mine, theirs = masks.draw_secret(), masks.draw_secret()
    key = masks.letter_key(mine, masks.public_key(theirs), ROSTER, 1, 2)
    sealed = masks.seal(key, b"shares", ROSTER, 1, 2)
    assert (
        masks.unseal(masks.letter_key(theirs, masks.public_key(mine), ROSTER, 1, 2), sealed, ROSTER, 1, 2) == b"shares"
    )
    for changed, roster, sender, receiver in (
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), ROSTER, 1, 2),
        (sealed, bytes(32), 1, 2),
        (sealed, ROSTER, 2, 1),
        (sealed, ROSTER, 1, 3),
    ):
        with pytest.raises(DisclosureError, match="changed on its way, or is of another sum"):
            masks.unseal(key, changed, roster, sender, receiver)


@pytest.mark.parametrize(
    "point",
    [bytes(32), b"\x01" + bytes(31), bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")],
)
def test_points_of_small_order_are_refused(point):
    with pytest.raises(DisclosureError, match="small order"):
        masks.agree_key(masks.draw_secret(), point, b"")
