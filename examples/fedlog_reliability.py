"""Whose knowledge helps a client that misses classes? FedLoG's study of head and tail (appendix G.2, figure 6).

One client is the *receiver*; the others only *contribute*, as in the paper's appendix C, which has FedAvg instead of
synthetic nodes. Their learnable nodes are mixed in four ways: of Head or
Tail classes (weighted by how frequent or how rare a class is at a contributor), from the branch for nodes of Head or
Tail degree. Each client is the receiver once, and is then asked for the classes it never saw. ``none`` is no synthetic
data.

    python examples/fedlog_reliability.py                          # Cora, 3 clients, one seed: about 15 minutes
    python examples/fedlog_reliability.py --rounds 60 --seeds 0 1 2 --data CiteSeer
"""

import argparse
from dataclasses import replace
from statistics import mean

from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare

KNOWLEDGE = {
    "HH": {"method.synthetic": "HH"},
    "HT": {"method.synthetic": "HT"},
    "TH": {"method.synthetic": "TH"},
    "TT": {"method.synthetic": "TT"},
    "none": {"method.local_generalization": False},
}
QUESTIONS = ("missing_class", "unseen_node", "new_client")


def configuration(options, receiver, settings):
    """A run in which one client receives."""
    return load_config(
        {
            "data.name": options.data,
            "data.root": options.data_root,
            "data.largest_component": True,
            "scenario.name": "unseen",
            "partition.rule": "metis",
            "partition.clients": options.clients,
            "partition.split": "global",
            "partition.ratios": [0.4, 0.3, 0.3],
            "partition.cut_seed": options.cut_seed,
            "model.name": "sage",
            "model.hidden": [128],
            "method.name": "fedlog",
            "method.rounds": options.rounds,
            "method.receiver": receiver,
            "evaluation.every": 5,
            "run.seeds": options.seeds,
            **settings,
        },
        assignments=options.set,
    ).with_explicit(())  # what --set says is for all five: one of them may have no use for it


def only_ask(simulation, receiver):
    """The same data, with the questions about unseen nodes put to the receiver alone."""
    silos = [
        silo if silo.client == receiver else replace(silo, evaluations=silo.evaluations[:1])
        for silo in simulation.silos
    ]
    return replace(simulation, silos=tuple(silos))


def study(options):
    """Accuracy by knowledge, receiver and question: at the round that validation chose, and at the last."""
    found = {}
    data = prepare(configuration(options, 0, {}))
    for receiver in range(options.clients):
        asked = only_ask(data, receiver)
        for name, settings in KNOWLEDGE.items():
            tree = run(configuration(options, receiver, settings), simulation=asked).tree
            for question in QUESTIONS:
                for when in ("scenarios", "scenarios_last"):
                    values = [seed[when][question]["accuracy"] for seed in tree["seeds"]]
                    values = [value for value in values if value is not None]
                    found[name, receiver, question, when] = mean(values) if values else None
    return found


def shown(value):
    return "     –" if value is None else f"{100 * value:6.1f}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default="Cora")
    parser.add_argument("--data-root", help="folder with PyG's raw files; by default they are downloaded")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cut-seed", type=int, default=1596)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting")
    options = parser.parse_args(arguments)
    found = study(options)
    for question in QUESTIONS:
        print(f"\n{question.replace('_', ' ')}: accuracy in percent, validation's round / last round")
        print("      " + "".join(f"  receiver {receiver:<6}" for receiver in range(options.clients)))
        for name in KNOWLEDGE:
            cells = [
                f"{shown(found[name, receiver, question, 'scenarios'])} /"
                f"{shown(found[name, receiver, question, 'scenarios_last'])}   "
                for receiver in range(options.clients)
            ]
            print(f"{name:5} " + "".join(cells))


if __name__ == "__main__":
    main()
