"""All attacks on a run in a folder."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import graphsilo
import kit
from graphsilo.attacks import record as records
from graphsilo.attacks.study import ATTACKS, NAMES, attack
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments import runner
from graphsilo.federation import registry


def finished(folder, **settings):
    runner.run(kit.small_run(run__seeds=[0], **settings), out=folder)
    return folder


def test_every_attack_as_everybody(tmp_path):
    heard = []
    found = attack(finished(tmp_path / "run"), shadows=2, say=heard.append)
    outcomes = found.outcomes[0]
    assert {one.attack.split(",")[0] for one in outcomes} == set(NAMES)
    assert {one.attacker for one in outcomes if one.attack in (*ATTACKS, "membership")} == {
        "coordinator",
        "silo",
        "reader",
    }
    assert all(one.low <= one.value <= one.high for one in outcomes if one.value is not None)
    assert found.shadows == 2
    assert "Attack: membership. It takes 2 more runs of this length; --shadows 0 leaves it out." in heard
    assert heard[-2:] == ["Shadow run 2 of 2.", "Attack: replay."]
    assert records.read(tmp_path / "run") == found


def test_the_same_run_is_attacked_alike(tmp_path):
    folder = finished(tmp_path / "run")
    assert attack(folder, shadows=2) == attack(folder, shadows=2)


def test_without_shadows_there_is_no_likelihood(tmp_path):
    folder = finished(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"shadows=0 .* leaves these out: nothing was attacked"):
        attack(folder, attacks=["membership"], shadows=0)
    assert not (folder / records.NAME).exists()
    assert attack(folder, attacks=["links"], shadows=5).shadows == 0


def test_a_second_attack_stands_beside_the_first(tmp_path):
    folder, heard = finished(tmp_path / "run"), []
    first = attack(folder, attacks=["rows", "links"])
    again = attack(folder, attacks=["rows"])
    assert sorted(map(str, again.outcomes[0])) == sorted(map(str, first.outcomes[0]))
    both = attack(folder, attacks=["classes"], say=heard.append)
    assert len(both.outcomes[0]) > len(first.outcomes[0])
    assert heard[-1] == f"{len(first.outcomes[0])} figures of earlier attacks on this run stand beside those found now."
    assert records.read(folder) == both
    other = attack(folder, attacks=["rows"], clients=[1], say=heard.append)
    assert other.targets == [0, 1, 2]
    assert other.outcomes[0][: len(both.outcomes[0])] == both.outcomes[0]
    assert {one.clients for one in other.outcomes[0][len(both.outcomes[0]) :]} == {(1,)}
    records.write(folder, replace(other, fingerprint="another"))
    assert attack(folder, attacks=["rows"], clients=[1], say=heard.append).targets == [1]
    assert heard[-1].endswith("is kept as attack-1.json.")
    assert (folder / "attack-1.json").exists()


def test_noise_that_cannot_be_repeated_is_said(tmp_path):
    noisy = {"method__name": "fedridge", "method__rounds": 1, "method__epsilon": 4.0}
    folder = finished(tmp_path / "run", evaluation__auc=True, **noisy)  # of few nodes the others may come out alike
    (note,) = attack(folder, attacks=["classes"], attackers=["coordinator"]).notes
    assert "the same settings, and noise that is new" in note


def test_graphs_are_refused(molecules, tmp_path):
    folder = finished(tmp_path / "run", data__name=str(molecules), data__generator=None, partition__rule="dirichlet")
    with pytest.raises(UnsupportedError, match=r"the task of the run in .* is 'graph'"):
        attack(folder)


def test_unknown_names_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="there is no attack 'row'"):
        attack(tmp_path, attacks=["row"])
    with pytest.raises(ConfigError, match="there is no attacker 'server'"):
        attack(tmp_path, attackers=["server"])


WRONG = [
    ("attacks", [], "attacks must be a list of one or more texts or none; got []."),
    ("attacks", "rows", "attacks must be a list of one or more texts or none; got 'rows'."),
    ("attackers", [3], "attackers.0 must be text; got 3."),
    ("seeds", 0, "seeds must be a list of one or more whole numbers at least 0 or none; got 0."),
    ("seeds", [-1], "seeds.0 must be at least 0; got -1."),
    ("clients", [True], "clients.0 must be a whole number at least 0; got True."),
    ("shadows", -1, "shadows must be at least 0; got -1."),
    ("shadows", 1.5, "shadows must be a whole number at least 0; got 1.5."),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG)
def test_what_cannot_be_is_refused_before_anything_runs(name, value, text, tmp_path):
    with pytest.raises(ConfigError) as caught:
        graphsilo.attack(tmp_path, **{name: value})
    assert str(caught.value) == text


NODE_METHODS = [
    name for name in registry.names() if "node" in registry.load(name).tasks and not registry.load(name).pooled
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NODE_METHODS)
def test_every_method_can_be_attacked(name, tmp_path):
    quick = {f"method__{key}": value for key, value in registry.load(name).quick.items()}
    folder = finished(tmp_path / "run", method__name=name, **{**quick, "method__rounds": 2})
    outcomes = attack(folder, shadows=2).outcomes[0]
    assert any(one.value is not None for one in outcomes)
