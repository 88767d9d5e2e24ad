"""Small federations of FedGM."""

from __future__ import annotations

SHORT = {"ratio": 0.5, "steps": 8, "match_hidden": 4, "epochs": 8, "checkpoints": 2, "train_every": 1}


def silos_of(kit, count=2, **more):
    return [kit.tiny_silo(client, nodes=20, train=range(6 + 4 * client), **more) for client in range(count)]


def built(kit, silos=None, **settings):
    return kit.build("fedgm", silos or silos_of(kit), **{**SHORT, **settings})
