"""Settings from a file, flags and assignments, checked at the edge."""

from __future__ import annotations

import pytest
import yaml

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.methods.fedprox import FedProxConfig


def written(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_written_out():
    tree = load_config().complete()
    assert tree["data"]["name"] == "citation-sbm"
    assert tree["method"]["name"] == "fedavg"
    assert tree["method"]["rounds"] == 100
    assert tree["method"]["local_epochs"] == 3
    assert tree["run"]["seeds"] == [0]
    assert "options" not in tree["method"]
    assert set(tree) == set(RunConfig.model_fields) - {"replaces", "own"}


def test_names_stand_for_sections(tmp_path):
    config = load_config(
        written(tmp_path, "data: Cora\npartition: metis\nmodel: sage\nmethod: fedprox\nscenario: unseen\n")
    )
    assert (config.data.name, config.partition.rule, config.model.name) == ("Cora", "metis", "sage")
    assert (config.method.name, config.scenario.name) == ("fedprox", "unseen")


def test_settings_stand_beside_the_name(tmp_path):
    config = load_config(
        written(tmp_path, "partition: {rule: dirichlet, alpha: 0.5, clients: 4}\nmethod: {name: fedprox, mu: 0.1}\n")
    )
    assert config.partition.options == {"alpha": 0.5}
    assert config.partition.clients == 4
    assert config.method_config().mu == 0.1


def test_later_ones_win(tmp_path):
    path = written(tmp_path, "partition: {clients: 4, seed: 1}\nmethod: {name: fedprox, mu: 0.1, rounds: 7}\n")
    config = load_config(
        path,
        overrides={"partition.clients": 5, "method.rounds": None, "partition.seed": 2},
        assignments=["method.mu=0.3"],
    )
    assert (config.partition.clients, config.partition.seed) == (5, 2)
    assert (config.method_config().rounds, config.method_config().mu) == (7, 0.3)


def test_types_of_assignments():
    config = load_config(
        assignments=[
            "run.seeds=[3, 4]", "method.reset_optimizer=true", "method.min_clients=null", "data.name=Cora",
            "evaluation.modes=[own_local, own_local]", "run.early_stopping=~", "partition.ratios=[0.2, 0.4, 0.4]",
        ]
    )  # fmt: skip
    assert config.run.seeds == [3, 4]
    assert config.method_config().reset_optimizer is True
    assert config.method_config().min_clients is None
    assert config.evaluation.modes == ["own_local"]
    assert config.partition.ratios == (0.2, 0.4, 0.4)


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("method.mue=1", r"^unknown setting 'method\.mue' for fedprox; did you mean 'method\.mu'\?$"),
        ("method.mu=x", r"^method\.mu must be a number at least 0; got 'x'\.$"),
        ("method.mu=.nan", r"^method\.mu must be a finite number at least 0; got nan\.$"),
        ("method.mu=nan", r"^method\.mu must be a number at least 0; got 'nan'\.$"),
        ("method.optimizer=adan", r"^method\.optimizer must be one of adam, sgd; got 'adan'\. Did you mean 'adam'\?$"),
    ],
)
def test_wrong_settings_of_a_method(assignment, text):
    config = load_config(assignments=["method.name=fedprox", assignment])
    with pytest.raises(ConfigError, match=text):
        config.method_config()


def test_all_misspelt_settings_are_said_at_once():
    """Of sections, of what is chosen in them, and of the method, each once."""
    wrong = {
        "run.sedes": [1], "evaluation.every": 0, "data.feeatures": 3, "partition.alhpa": 2, "scenario.hosp": 1,
        "model.hiden": 3, "perturb.edge_nois": 1, "method.name": "fedprox", "method.muu": 1,
    }  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=wrong)
    said = str(caught.value)
    for name in wrong.keys() - {"method.name", "evaluation.every"}:
        assert said.count(f"unknown setting '{name}'") == 1
    assert "evaluation.every must be at least 1; got 0." in said
    with pytest.raises(ConfigError, match=r"unknown setting 'datta'.* unknown setting 'method\.muu' for fedprox"):
        load_config({"datta": "Cora", "method": {"name": "fedprox", "muu": 1}})


def test_unknown_methods():
    with pytest.raises(ConfigError, match=r"unknown method 'fedprx'; did you mean 'fedprox'\?"):
        load_config(assignments=["method=fedprx"]).method_config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must be a table of sections; it is a list"),
        ("data: [", "is no valid YAML"),
        ("just text", "must be a table of sections; it is a str"),
        ("datta: Cora\n", r"unknown setting 'datta'; did you mean 'data'\?"),
        ("run: {seed: [0]}\n", r"unknown setting 'run\.seed'; did you mean 'run\.seeds'\?"),
        ("run: 3\n", "run"),
        ("1: 2\n", "unknown setting '1'"),
        ("run: {seeds: [.nan]}\n", r"run\.seeds\.0"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.yaml does not exist"):
        load_config(tmp_path / "no.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)
    (tmp_path / "run.yaml").write_bytes(b"data: \xff\xfe\x00")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        load_config(tmp_path / "run.yaml")


def test_an_empty_file_is_the_defaults(tmp_path):
    assert load_config(written(tmp_path, "")) == load_config()


def test_a_name_turns_into_a_section_when_a_setting_is_added(tmp_path):
    config = load_config(written(tmp_path, "method: fedprox\n"), assignments=["method.mu=0.2"])
    assert config.method_config().mu == 0.2


def test_data_may_be_a_list_of_names(tmp_path):
    assert load_config(written(tmp_path, "data: [Cora, PubMed]\n")).data.name == ["Cora", "PubMed"]
    with pytest.raises(ConfigError, match=r"^data\.0 should be text; got 1\.$"):
        load_config(written(tmp_path, "data: [1]\n"))


# -- a rule or a stored partition ------------------------------------------------------------------------------------


def test_a_stored_partition_given_by_a_flag_takes_the_place_of_the_files_rule(tmp_path):
    path = written(tmp_path, "partition: {rule: metis, clients: 4, seed: 3}\n")
    for config in (
        load_config(path, overrides={"partition.file": "p.npz"}),
        load_config(path, assignments=["partition.file=p.npz"]),
    ):
        assert (config.partition.rule, config.partition.file, config.partition.seed) == ("auto", "p.npz", 3)
        assert "clients" not in config.partition.model_fields_set
    config = load_config(path, overrides={"partition.clients": 5, "partition.file": "p.npz"})
    assert "clients" in config.partition.model_fields_set
    assert load_config(written(tmp_path, "partition: metis\n"), overrides={"partition.file": "p.npz"}).partition.file


def test_a_rule_given_by_a_flag_takes_the_place_of_the_files_stored_partition(tmp_path):
    path = written(tmp_path, "partition: {file: p.npz}\n")
    for config in (
        load_config(path, overrides={"partition": "metis"}),
        load_config(path, assignments=["partition.rule=metis"]),
        load_config(path, assignments=["partition={rule: metis}"]),
    ):
        assert (config.partition.rule, config.partition.file) == ("metis", None)
    kept = load_config(path, overrides={"partition.seed": 3})
    assert (kept.partition.rule, kept.partition.file) == ("auto", "p.npz")
    assert load_config(path, assignments=["partition.file=null"]).partition.file is None


def test_a_default_number_of_clients_is_not_written_beside_a_stored_partition(tmp_path):
    first = load_config(overrides={"partition.file": "p.npz"})
    second = load_config(written(tmp_path, yaml.safe_dump(first.complete())))
    assert "clients" not in second.partition.model_fields_set
    assert second.complete() == first.complete()


CONFIGS = [
    {},
    {"method": {"name": "fedprox", "mu": 0.1, "participation": 0.5}, "partition": {"rule": "dirichlet", "alpha": 0.3}},
    {"data": {"name": ["a.yaml", "b.yaml"], "scale": "unit_rows"}, "run": {"seeds": [3, 1], "references": ["local"]}},
    {"model": {"pool": ["gcn", {"name": "sage", "hidden": 8}], "dropout": 0.1}, "method": "local"},
    {"scenario": {"name": "unseen", "hops": 1}, "perturb": {"edge_noise": 0.1}, "task": "node"},
    {
        "evaluation": {"modes": ["own_global"], "every": 5, "select_by": "macro_f1"},
        "partition": {"ratios": [0.5, 0.2, 0.3]},
    },
]


@pytest.mark.parametrize("tree", CONFIGS, ids=lambda tree: "+".join(tree) or "defaults")
def test_a_complete_configuration_is_itself(tmp_path, tree):
    first = RunConfig.of(tree)
    second = load_config(written(tmp_path, yaml.safe_dump(first.complete(), sort_keys=False)))
    assert second.complete() == first.complete()
    assert second.method_config() == first.method_config()
    assert load_config(written(tmp_path, yaml.safe_dump(second.complete()))) == second


@pytest.mark.parametrize(
    ("tree", "model"),
    [
        ({}, "gamlp"),
        ({"data": "MUTAG"}, "gin"),
        ({"data": "imdb_binary"}, "gin"),
        ({"data": ["MUTAG", "PROTEINS"]}, "gin"),
        ({"data": {"name": "MUTAG", "max_degree": 9}, "model": {"hidden": 8}}, "gin"),
        ({"data": "Cora", "model": {"hidden": 8}}, "gamlp"),
        ({"data": "mine.npz"}, "gamlp"),  # not known before it is loaded
        ({"data": "mine.npz", "task": "graph"}, "gin"),
        ({"data": "MUTAG", "model": "gcn"}, "gcn"),
        ({"data": "MUTAG", "model": {"pool": "fedpg"}}, "gcn"),
        ({"data": "nothing of this name"}, "gamlp"),
        ({"data": "Cora", "task": "link"}, "gcn"),  # the method names none for it
    ],
    ids=str,
)
def test_a_method_may_name_a_backbone_per_task(tmp_path, tree, model):
    config = RunConfig.of({**tree, "method": "fedpg"})
    assert config.model.name == model
    assert config.model.options == ({"hidden": 8} if "hidden" in str(tree) else {})
    again = load_config(written(tmp_path, yaml.safe_dump(config.complete(), sort_keys=False)))
    assert again.complete() == config.complete()


def test_a_method_that_names_one_backbone_has_it_for_every_task():
    for data in ("Cora", "MUTAG"):
        config = RunConfig.of({"data": data, "method": "fedsage"})
        assert (config.model.name, config.model.options) == ("sage", {"hidden": 64})


def test_settings_are_frozen():
    config = FedProxConfig()
    with pytest.raises(Exception, match="frozen"):
        config.mu = 3.0


def test_settings_are_got_and_changed_by_dotted_name():
    said = {"method": "fedprox", "method.mu": 0.1, "perturb.edge_noise": 0.2, "run.seeds": [3]}
    config = load_config(overrides=said)
    names = ("method.mu", "run.seeds", "perturb.edge_noise", "model.hops")
    assert [config.get(name) for name in names] == [0.1, [3], 0.2, None]
    other = config.with_settings({"method.mu": 0.5, "run.alone": True, "perturb.edge_noise": 0.0})
    assert [other.get(name) for name in (*names[:3], "run.alone")] == [0.5, [3], 0.0, True]
    assert (other.given, other.explicit) == (config.given, config.explicit)
    left = other.unset(names[:3])
    assert (left.method.options, left.run.seeds, left.run.alone, left.perturb) == ({}, [0], True, {})
    assert left.given == ["method.name"]
    whole = load_config(overrides={"model": {"name": "sage", "unit_rows": True}})
    assert whole.unset(["model.name"]).model.options == {}  # another model has no such setting
