"""What was meant by a name that is no setting's."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("partition.client=3", r"^unknown setting 'partition\.client'; did you mean 'partition\.clients'\?$"),
        ("run.seedz=[1]", r"^unknown setting 'run\.seedz'; did you mean 'run\.seeds'\?$"),
        ("evaluation.evry=2", r"^unknown setting 'evaluation\.evry'; did you mean 'evaluation\.every'\?$"),
        ("methd.mu=1", r"unknown setting 'methd\.mu'; did you mean 'method\.mu' \(of fedpg, fedprox, moon\)\?"),
        ("criterion=1", r"unknown setting 'criterion'; did you mean 'evaluation\.select_by'\?"),
        ("rounds=3", r"unknown setting 'rounds'; did you mean 'method\.rounds'\?"),
        ("mu=0.1", r"unknown setting 'mu'; did you mean 'method\.mu' \(of .*\)"),
        ("train.lr=0.1", r"unknown setting 'train\.lr'; did you mean 'method\.lr'\?"),
        ("seed=1", r"did you mean 'data\.seed' or 'partition\.seed'\?"),
        ("hiden=8", r"did you mean 'model\.hidden'\?"),
        ("alpha=0.5", r"did you mean .*'partition\.alpha' \(of dirichlet"),
        ("zzzz=1", r"unknown setting 'zzzz'; known: data, "),
        ("data.name=3", r"^data\.name must be text or a list of texts; got 3\.$"),
        ("data.name=[1]", r"^data\.name\.0 must be text; got 1\.$"),
        ("model.pool=[3]", r"^model\.pool\.0 must be text or a table; got 3\.$"),
        ("partition.ratios=[1, 0]", r"^partition\.ratios must be a list of 3 numbers or none; got \[1, 0\]"),
        ("run=3", r"^run should be a table of settings; got 3\.$"),
        ("method.rounds", r"--set needs NAME=VALUE, such as method\.mu=0\.1; got 'method\.rounds'"),
        ("run.seeds=[1, ", r"--set run\.seeds=\[1, , line 1, column 5: this is no valid YAML: a value is missing"),
        ("run.seeds=[010]", r"column 2: readers of YAML do not agree on what '010' is"),
        ("partition.seed=010", "'010'"),
        ("partition.seed=1:30", "'1:30'"),
        ("method={mu: 1, mu: 2}", "the key 'mu' stands there a second time"),
        ("run.seeds=3", r"^run\.seeds is a list of seeds; got 3, which may mean seed 3 or 3 seeds\."),
        ("run.seeds=[]", r"^run\.seeds must be a list of one or more whole numbers at least 0; got \[\]\.$"),
        ("run.seeds=[-1]", r"^run\.seeds\.0 must be at least 0; got -1\.$"),
        (f"run.seeds=[{2**70}]", rf"^run\.seeds must be below 1e18 in size; got \[{2**70}\]\.$"),
        (f"data.seed=-{10**18}", rf"^data\.seed must be below 1e18 in size; got -{10**18}\.$"),
        ("run.seeds=[1, 1]", r"run\.seeds must differ"),
        ("partition.clients=2.5", r"partition\.clients"),
        (
            "scenario.name=unsen",
            r"one of seen, unseen, open, inductive, receiver; got 'unsen'\. Did you mean 'unseen'\?$",
        ),
        ("evaluation.modes=[own]", r"evaluation\.modes\.0 must be one of own_local, "),
        ("run.references=[lokal]", r"run\.references\.0"),
        ("task=nodes", "task"),
        ("partition.clients.more=3", r"'partition\.clients' is a value, not a section"),
        ("perturb.edge_noise.x=3", r"'perturb\.edge_noise' is a value, not a section"),
    ],
)
def test_wrong_assignments(assignment, text):
    with pytest.raises(ConfigError, match=text):
        load_config(None, overrides={"partition.clients": 4}, assignments=[assignment])


def test_a_setting_of_the_chosen_method_without_its_section():
    with pytest.raises(ConfigError, match=r"unknown setting 'mue'; did you mean 'method\.mu'\?"):
        load_config(overrides={"method": "fedprox"}, assignments=["mue=0.1"])
