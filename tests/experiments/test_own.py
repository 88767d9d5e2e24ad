"""Things of a person's own through every door: in Python, in a file of settings, on the command line, and later."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest
import torch
import yaml

import graphsilo
from graphsilo.cli import main
from graphsilo.cli.values import resume_command
from graphsilo.errors import ConfigError, GraphsiloError, PartitionError, UnsupportedError
from graphsilo.experiments.check_remote import check_remote
from graphsilo.experiments.config import load_config
from graphsilo.experiments.service.jobs import Jobs
from graphsilo.federation import trust
from kit.own import EXAMPLES, NET, QUICK, RULE, SMALL, numbers, written
from kit.stopped import Stop, StopAfter


@pytest.fixture
def brought(tmp_path):
    """A folder with a net, a rule and a method."""
    written(tmp_path, "net.py", NET)
    written(tmp_path, "rule.py", RULE)
    written(tmp_path, "per.py", (EXAMPLES / "own_method.py").read_text())
    return tmp_path


def told(call) -> str:
    with pytest.raises(GraphsiloError) as refused:
        call()
    return str(refused.value)


def test_a_metric_of_ones_own_is_measured_where_it_is_named(tmp_path, monkeypatch):
    """Ten for a missed one of the second class, one for one of the first: by the counts of the confusion."""
    monkeypatch.chdir(tmp_path)
    text = """
import numpy as np
from graphsilo.evaluate.metrics import Metric

def cost(of):
    items = of.actual.sum(-1)
    return ((of.actual - of.hits) * [1, 10, 0][:of.hits.shape[-1]]).sum(-1) / np.where(items, items, np.nan)

COST = Metric("cost", "Cost", "by what was missed", cost, is_share=False, higher_is_better=False, each_round=True)
"""
    written(tmp_path, "cost.py", text)
    result = graphsilo.run(**QUICK, **{"evaluation.metrics": "cost.py"}, out=tmp_path / "run")
    (seed,) = result.record.seeds
    missed = np.array(seed.confusion) * (1 - np.eye(3))
    expected = (missed.sum(axis=1) * [1, 10, 0]).sum() / np.sum(seed.confusion)
    assert seed.test.beside.pooled.numbers["cost"] == pytest.approx(expected)
    assert set(seed.rounds[0].test) >= {"cost", "accuracy"}
    plain = graphsilo.run(**QUICK)
    assert "cost" not in plain.tree["seeds"][0]["test"]
    assert plain.record.fingerprint == result.record.fingerprint
    again = load_config(tmp_path / "run" / "config.yaml")
    assert (again.evaluation.metrics, list(again.find_own("metric"))) == (["cost"], ["cost"])
    (tmp_path / "cost.py").write_text("")
    assert "has changed since" in told(lambda: load_config(tmp_path / "run" / "config.yaml"))


def test_a_metric_that_is_infinite_is_missing_and_links_have_none(tmp_path):
    text = "METRIC = Metric('odd', 'O', 'o', lambda of: of.hits.sum(-1) / 0.0)"
    written(tmp_path, "odd.py", f"from graphsilo.evaluate.metrics import Metric\n{text}")
    asked = {"evaluation.metrics": str(tmp_path / "odd.py")}
    with np.errstate(all="ignore"):
        assert graphsilo.run(**QUICK, **asked).tree["seeds"][0]["test"]["odd"] is None
    assert "this task has none" in told(lambda: graphsilo.run(**QUICK, task="link", **asked))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Metric('auc2', 'A', 'a', ranking='roc_auc')", "computed from counts, which silos send anyway"),
        ("Metric('accuracy', 'A', 'a', lambda of: of.hits.sum(-1))", "a metric with the name 'accuracy' already"),
        ("Metric('mine', 'Accuracy', 'a', lambda of: of.hits.sum(-1))", "a metric with the title 'Accuracy' already"),
        ("Metric('rows', 'A', 'a', lambda of: of.hits)", r"gives (3, 4, 2) of margins of two classes, not (3, 4)"),
        ("Metric('bad', 'A', 'a', lambda of: of.hit)", "AttributeError"),
        ("3", "METRIC = Metric"),
    ],
)
def test_what_is_no_metric_is_refused_before_anything_runs(tmp_path, text, said):
    (tmp_path / "own.py").write_text(f"from graphsilo.evaluate.metrics import Metric\nMETRIC = {text}\n")
    assert said in told(lambda: graphsilo.run(**QUICK, **{"evaluation.metrics": [str(tmp_path / "own.py")]}))
    assert "no metric of your own" in told(lambda: graphsilo.run(**QUICK, **{"evaluation.metrics": ["accuracy"]}))


def test_every_door_gives_the_same_numbers(brought, monkeypatch):
    """As files, as objects, in YAML with paths beside it, and on the command line."""
    monkeypatch.chdir(brought)
    named = {**QUICK, "partition": "rule.py"}
    by_path = graphsilo.run(**named, model={"name": "net.py", "hidden": 4}, method="per.py")
    monkeypatch.syspath_prepend(str(brought))
    import net
    import per
    import rule

    by_object = graphsilo.run(
        **{**QUICK, "partition": rule.bands}, model={"name": net.Net, "hidden": 4}, method=per.METHOD
    )
    assert numbers(by_object) == numbers(by_path)
    by_module = graphsilo.run(
        **{**QUICK, "partition": "rule:bands"}, model={"name": "net:Net", "hidden": 4}, method="per:METHOD"
    )
    assert numbers(by_module) == numbers(by_path)
    model = {"name": "net.Net", "pool": None, "hidden": 4, "dropout": 0.5, "norm": False}
    assert by_path.tree["config"]["model"] == model
    assert (by_path.tree["method"]["name"], by_path.tree["partition"]["rule"]) == ("fedper", "rule.bands")
    settings = {
        "data": SMALL, "partition": {"rule": "rule.py", "clients": 3}, "method": {"name": "./per.py", "rounds": 2},
        "model": {"name": "./net.py:Net", "hidden": 4},
    }  # fmt: skip
    written(brought, "run.yaml", yaml.safe_dump(settings))
    monkeypatch.chdir("/")
    assert numbers(graphsilo.run(brought / "run.yaml", report=False)) == numbers(by_path)
    monkeypatch.chdir(brought)
    flags = (
        "run --data citation-sbm --set data.nodes=90 --set data.classes=3 --set data.features=12 --partition rule.py "
        "--clients 3 --rounds 2 --model net.py --set model.hidden=4 --method per.py --out run --quiet --no-report"
    )
    assert main(flags.split()) == 0
    again = graphsilo.run("run/config.yaml", report=False)
    assert numbers(again) == numbers(by_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("per.py", "        super().__init__(context)\n        names", "        self.sizes = 1 / 0\n        names", 41),
        ("per.py", "        self.run_epochs()", "        self.run_epochs(); self.epochs_done += 1", 35),
        ("rule.py", "    return (np.", "    return graph.num_edge * (np.", 8),
    ],
    ids=["server", "client", "rule"],
)
def test_a_mistake_in_ones_own_code_is_called_ones_own(brought, monkeypatch, capsys, name, old, new, line):
    monkeypatch.chdir(brought)
    text = (brought / name).read_text()
    assert old in text
    written(brought, name, text.replace(old, new))
    flags = "run --data citation-sbm --set data.nodes=90 --partition rule.py --clients 3 --rounds 1 --method per.py"
    assert main([*flags.split(), "--quiet", "--no-report", "--out", "run"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "bug in graphsilo" not in told
    assert "your own code" in told
    assert f"{(brought / name).resolve()}, line {line}" in told


@pytest.mark.slow
def test_workers_and_a_stop_change_no_number(brought):
    asked = {
        **QUICK,
        "rounds": 4,
        "model": {"name": str(brought / "net.py"), "norm": True},
        "method": str(brought / "per.py"),
    }
    whole = numbers(graphsilo.run(**asked))
    assert numbers(graphsilo.run(**asked, workers=2)) == whole

    with pytest.raises(Stop):
        graphsilo.run(**asked, out=brought / "run", progress=StopAfter(0, 2), **{"run.checkpoint_every": 1})
    resumed = graphsilo.run(brought / "run" / "config.yaml", out=brought / "run", resume=True, report=False)
    assert numbers(resumed) == whole
    assert resumed.tree["config"]["own"]["model"]["net.Net"]["place"] == f"{brought / 'net.py'}:Net"


@pytest.mark.slow
def test_workers_know_what_was_imported_here(brought, monkeypatch):
    """A module beside the script is in no path of theirs."""
    monkeypatch.syspath_prepend(str(brought))
    import net
    import per

    asked = {**QUICK, "model": net.Net, "method": per.METHOD}
    assert numbers(graphsilo.run(**asked, workers=2)) == numbers(graphsilo.run(**asked))


@pytest.mark.slow
def test_a_run_is_asked_by_another_process(brought, capsys):
    """What predicts, plans and goes on finds the file again, and the numbers are those of this process."""
    out = brought / "run"
    graphsilo.run(**QUICK, model=str(brought / "net.py"), method=str(brought / "per.py"), out=out)
    here = graphsilo.predict(out, 1).probabilities
    program = f"import graphsilo; print(graphsilo.predict({str(out)!r}, 1).probabilities.sum(axis=0).tolist())"
    for trusts in (False, True):
        if trusts:
            assert main(["trust", str(brought / "net.py"), str(brought / "per.py")]) == 0
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == trusts
    assert done.stdout.strip() == str(here.sum(axis=0).tolist())
    attacked = graphsilo.attack(out, attacks=["classes"], shadows=0, report=False)
    assert attacked.outcomes


@pytest.mark.slow
def test_a_plan_knows_files_and_no_session(brought):
    asked = {key: value for key, value in QUICK.items() if key != "report"}
    found = graphsilo.plan(**asked, model=str(brought / "net.py"), seconds=1)
    assert found.seed.up > 0


def test_changed_code_is_another_model(brought):
    out, place = brought / "run", brought / "net.py"
    graphsilo.run(**QUICK, model=str(place), out=out)
    (out / "report.html").unlink(missing_ok=True)
    written(brought, "net.py", NET.replace(".relu()", ".tanh()"))
    for call in (
        lambda: graphsilo.predict(out, 0),
        lambda: graphsilo.run(out / "config.yaml", out=out, resume=True),
        lambda: graphsilo.attack(out),
    ):
        assert "model 'net.Net' has changed since the run was begun" in told(call)
    text = told(lambda: graphsilo.run(**QUICK, model=str(place), out=out, resume=True))
    assert f"model 'net.Net' ({place}:Net) is not what it was when the run was begun" in text
    before = json.loads((out / "result.json").read_text())
    other = graphsilo.run(out / "config.yaml", model=str(place), out=brought / "other", report=False)
    assert other.tree["fingerprint"] != before["fingerprint"]
    place.unlink()
    assert "cannot be read" in told(lambda: graphsilo.predict(out, 0))


@pytest.mark.slow
def test_what_a_session_defines_stays_there(tmp_path):
    """Runs, and is refused at once where another process would have to find it."""

    def local(inputs, outputs):
        return torch.nn.Linear(inputs, outputs)

    result = graphsilo.run(**QUICK, model=local, out=tmp_path / "run")
    assert graphsilo.predict(result, 0).probabilities.shape[1] == 3
    for call, why in (
        (lambda: graphsilo.run(**QUICK, model=local, workers=2), "workers=2"),
        (lambda: graphsilo.plan(data=SMALL, model=local), "a plan"),
    ):
        text = told(call)
        assert text.startswith(f"{why} starts other processes, and model 'test_own.local' is defined in a script")
        assert "say model='file.py:NAME'" in text
    program = f"import graphsilo; graphsilo.predict({str(tmp_path / 'run')!r}, 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "model 'test_own.local' was defined in a script or notebook that is over" in done.stderr


def test_models_of_a_list_may_be_own(brought):
    pool = [str(brought / "net.py"), "gcn", {"name": f"{brought / 'net.py'}:Net", "hidden": 4}]
    result = graphsilo.run(**QUICK, method="local", model={"pool": pool})
    assert result.tree["config"]["model"]["pool"] == ["net.Net", "gcn", {"name": "net.Net", "hidden": 4}]


def test_sites_run_no_code_that_a_coordinator_names(brought):
    config = load_config(overrides={"model": str(brought / "net.py")})
    with pytest.raises(UnsupportedError, match=r"sites run no code that a coordinator names.*graphsilo\.models"):
        check_remote(config)
    from graphsilo import models

    with pytest.raises(ConfigError, match="unknown model"):
        models.entry(f"{brought / 'net.py'}:Net")  # what a message says is looked up, never loaded


# -- what somebody else wrote ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gift(tmp_path_factory):
    """The folder of a run that names code which its author put beside it."""
    folder = tmp_path_factory.mktemp("given")
    graphsilo.run(**QUICK, out=folder / "run")
    text = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
    return folder / "run", text


GIVEN = {
    "method": ((EXAMPLES / "own_method.py").read_text(), "METHOD", "fedper"),
    "model": (NET, "Net", "evil.Net"),
    "partition": (RULE, "bands", "evil.bands"),
}


REFUSED = [
    "predict --run gift --client 0", "attack gift --shadows 0", "run --resume --out gift", "run gift/config.yaml",
    "run --workers 2 --resume --out gift", "plan gift/config.yaml --seconds 1", "gntk --run gift",
    "tune gift/config.yaml --trials 1 --out study",
]  # fmt: skip
READ = ["report gift", "compare gift"]


@pytest.mark.parametrize(
    ("section", "command"),
    [*(("method", each) for each in (*REFUSED, *READ)), ("model", REFUSED[0]), ("partition", REFUSED[3])],
)
def test_a_folder_from_elsewhere_brings_no_code(section, command, gift, tmp_path, monkeypatch, capsys):
    shutil.copytree(gift[0], tmp_path / "gift")
    monkeypatch.chdir(tmp_path)
    text, variable, name = GIVEN[section]
    evil = written(tmp_path / "gift", "evil.py", gift[1] + text)
    config = yaml.safe_load((tmp_path / "gift" / "config.yaml").read_text())
    config["own"] = {section: {name: {"place": f"{evil}:{variable}", "sha256": sha256(evil.read_bytes()).hexdigest()}}}
    config[section] = {"rule" if section == "partition" else "name": name}
    written(tmp_path / "gift", "config.yaml", yaml.safe_dump(config))
    assert (main(command.split()) == 2) == (command in REFUSED)
    said = " ".join(capsys.readouterr().err.split())
    assert not evil.with_suffix(".ran").exists()
    assert (f"graphsilo trust {evil}" in said) == (command in REFUSED)


def test_a_queue_takes_no_code(gift, tmp_path):
    """Neither where a job is put into it, nor where a coordinator finds one in it."""
    evil = written(tmp_path, "evil.py", gift[1] + GIVEN["method"][0])
    file = written(tmp_path, "config.yaml", "method: ./evil.py\n")
    jobs = Jobs(tmp_path / "kit")
    assert f"graphsilo trust {evil}" in told(lambda: jobs.submit(file))
    written(tmp_path, "config.yaml", "method: fedavg\n")
    job = jobs.submit(file)
    written(tmp_path / "kit" / "jobs" / job.id, "config.yaml", f"method: {evil}\n")
    assert f"graphsilo trust {evil}" in told(lambda: load_config(jobs.config_path(job)))


def test_a_configuration_names_code_and_its_reader_lets_it_run(gift, tmp_path, monkeypatch, capsys):
    """By naming it in the command, whichever way, or by having trusted it."""
    path = written(tmp_path, "evil.py", gift[1] + GIVEN["method"][0])
    settings = {
        "data": SMALL,
        "partition": {"rule": "random", "clients": 2},
        "method": {"name": "evil.py", "rounds": 1},
    }
    file = str(written(tmp_path, "run.yaml", yaml.safe_dump(settings)))
    monkeypatch.chdir(tmp_path)
    run = ["run", file, "--quiet", "--no-report", "--out"]
    assert main([*run, "none"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"graphsilo trust {path}" in said
    assert sha256(path.read_bytes()).hexdigest() in said
    assert not path.with_suffix(".ran").exists()
    for more in (["--own", "evil.py"], ["--own", "evil.py:METHOD"], ["--method", "evil.py"]):
        trust._ALLOWED.clear()
        assert main([*run, f"named{more[0]}{more[1]}", *more]) == 0
    trust._ALLOWED.clear()
    assert main(["trust", "evil.py"]) == 0
    assert main([*run, "trusted"]) == 0
    capsys.readouterr()
    assert main(["trust", "--list"]) == 0
    assert str(path) in capsys.readouterr().out
    assert main(["trust", "--remove", "evil.py"]) == 0
    trust._ALLOWED.clear()
    assert main(["run", "--resume", "--out", "trusted"]) == 2
    assert main(["run", "--resume", "--own", "evil.py", "--out", "trusted", "--quiet", "--no-report"]) == 0


def test_who_stops_a_run_is_told_its_code(brought, tmp_path):
    config = load_config(overrides={"model": str(brought / "net.py"), "method": "fedavg"})
    assert resume_command("run", tmp_path / "a b", config) == (
        f"graphsilo run --resume --out '{tmp_path / 'a b'}' --own={brought / 'net.py'}:Net"
    )


def test_settings_that_are_tried_name_no_code(gift, tmp_path, monkeypatch, capsys):
    evil = written(tmp_path, "evil.py", gift[1] + NET)
    monkeypatch.chdir(tmp_path)
    for space in ({"model.name": ["evil.py", "gcn"]}, {"model": [{"name": str(evil)}]}):
        settings = {"data": SMALL, "partition": "random", "tune": {"trials": 2, "space": space, **space}}
        file = written(tmp_path, "tune.yaml", yaml.safe_dump(settings))
        assert main(["tune", str(file), "--out", "study", "--quiet", "--trials", "2"]) != 0
    assert not evil.with_suffix(".ran").exists()


# -- bad input -----------------------------------------------------------------------------------------------------


FILES = {
    "none.py": "x = 1\n",
    "broken.py": "x = 1\ndef f(:\n",
    "missing.py": "\nimport nowhere_at_all\n",
    "two.py": NET + "\n\nclass Other(Net):\n    pass\n",
    "fails.py": "raise RuntimeError('no')\n",
    "avg.py": (EXAMPLES / "own_method.py").read_text().replace('"fedper"', '"fedavg"'),
    "twice.py": (EXAMPLES / "own_method.py").read_text().replace("METHOD =", "A = B ="),
}


@pytest.mark.parametrize(
    ("section", "value", "text"),
    [
        ("model", "nowhere.py", r"the file .*nowhere\.py cannot be read \(No such file"),
        ("model", "none.py", r"none\.py holds nothing that could be meant; wanted is a class that derives from torch"),
        ("model", "broken.py", r"broken\.py, line 2: the file cannot be imported: SyntaxError: invalid syntax"),
        ("model", "missing.py", r"missing\.py, line 2: .* No module named 'nowhere_at_all'"),
        ("model", "fails.py", r"fails\.py, line 1: the file cannot be imported: RuntimeError: no"),
        ("model", "two.py", r"two\.py holds 2 things that could be meant: Net, Other\. Say which: two\.py:Net"),
        ("model", "two.py:Nett", r"two\.py:Nett: there is no 'Nett'; did you mean 'Net'\?"),
        ("model", "no.such.module:Net", r"the module no\.such\.module cannot be imported"),
        ("method", "none.py", r"none\.py holds nothing that could be meant; wanted is METHOD = Method"),
        ("method", "avg.py", r"there is a method 'fedavg' already; give yours .* another name"),
        ("partition", "none.py", r"wanted is a function \(graph, clients, seed\)"),
    ],
)
def test_a_file_that_does_not_hold_it(section, value, text, tmp_path, monkeypatch, capsys):
    for name, content in FILES.items():
        written(tmp_path, name, content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=text):
        graphsilo.run(**{**QUICK, section: value}, out="run")
    assert not (tmp_path / "run").exists()
    assert main(["run", "--data", "citation-sbm", f"--{section}", value, "--out", "run"]) == 2
    assert "\n" not in capsys.readouterr().err.strip()
    assert not (tmp_path / "run").exists()


def test_two_methods_in_a_file(tmp_path):
    text = (
        FILES["twice.py"].replace("A = B =", "A =")
        + '\nB = Method(name="b", config=A.config, client=Client, server=Server)\n'
    )
    path = written(tmp_path, "twice.py", text)
    with pytest.raises(ConfigError, match=r"holds 2 things that could be meant: A, B\. Say which: .*twice\.py:A"):
        graphsilo.run(**QUICK, method=str(path))
    assert graphsilo.run(**QUICK, method=f"{path}:A").tree["method"]["name"] == "fedper"


# -- partitions ----------------------------------------------------------------------------------------------------


OWNERS = np.arange(90) % 4


@pytest.mark.parametrize("owners", [OWNERS, OWNERS.tolist(), torch.from_numpy(OWNERS)], ids=["array", "list", "tensor"])
def test_client_numbers_are_counted(owners, tmp_path):
    quick = {key: value for key, value in QUICK.items() if key not in ("partition", "clients")}
    result = graphsilo.run(**quick, partition=owners, out=tmp_path / "run")
    assert result.tree["partition"]["clients"] == 4
    assert [row["nodes"] for row in result.tree["partition"]["per_client"]] == [23, 23, 22, 22]
    again = graphsilo.run(tmp_path / "run" / "config.yaml", out=tmp_path / "run", resume=True, report=False)
    assert numbers(again) == numbers(result)
    assert graphsilo.partition(graphsilo.load(**SMALL), owners).num_clients == 4


def test_a_stored_table_counts_its_clients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("owners.csv", OWNERS, fmt="%d")
    quick = {key: value for key, value in QUICK.items() if key not in ("partition", "clients")}
    rule = {"rule": "files", "path": "owners.csv"}
    assert graphsilo.run(**quick, partition=rule).tree["partition"]["clients"] == 4
    assert graphsilo.partition(graphsilo.load(**SMALL), "files", path="owners.csv").num_clients == 4
    assert "names client 3, but 3 clients" in told(lambda: graphsilo.run(**quick, partition=rule, clients=3))
    assert "gives client 4 of 5 no node" in told(lambda: graphsilo.run(**quick, partition=rule, clients=5))
    graphsilo.partition(graphsilo.load(**SMALL), "files", path="owners.csv").save("cut.npz")
    stored = {"rule": "files", "path": "cut.npz"}
    assert graphsilo.run(**quick, partition=stored).tree["partition"]["clients"] == 4
    assert "holds 4 clients, 7 were asked for" in told(lambda: graphsilo.run(**quick, partition=stored, clients=7))


def overlapping(graph, clients, seed):
    return [[0, 1, 2], [2, 3, 4]]


def too_few(graph, clients, seed):
    return np.zeros(graph.num_nodes, dtype=int)


def outside(graph, clients, seed):
    return [[0, 1], [2, 400]]


def fractions(graph, clients, seed):
    return np.linspace(0, 1, graph.num_nodes)


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        (OWNERS[:7], r"the partition that was given names a client for 7 nodes, but citation-sbm has 90"),
        (OWNERS - 5, r"names client -5, but clients are numbered from 0 \(-1 for none\)"),
        (np.full(90, -1), r"gives no client a node"),
        (OWNERS * 2, r"gives clients 1, 3, 5 of 7 no node: number the clients from 0 without a gap"),
        (OWNERS / 2, r"should be a list or array \[n\] of whole numbers; got shape \(90,\) of float64"),
        (OWNERS > 2, r"got shape \(90,\) of bool"),
        (["a"] * 90, r"should be a list or array \[n\] of whole numbers"),
        (OWNERS.reshape(2, 45), r"got shape \(2, 45\)"),
        (overlapping, r"'test_own\.overlapping' gives node 2 to clients 0, 1, and 1 nodes in all more than once"),
        (too_few, r"was to make 2 clients, and made 1"),
        (outside, r"gives client 1 node 400, but nodes are numbered 0 to 89"),
        (fractions, r"a client number per node should be a list or array .* got shape \(90,\) of float64"),
        (lambda graph: None, r"should take \(graph, clients, seed\); it takes \(graph\)"),
        (3, r"partition=\.\.\.\) takes a rule, a stored partition .* got 3 of type int"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the same in every process
)
def test_partitions_that_do_not_fit(partition, text, tmp_path):
    more = {"clients": 2} if callable(partition) else {}
    quick = {key: value for key, value in QUICK.items() if key not in ("partition", "clients")}
    with pytest.raises((PartitionError, ConfigError), match=text):
        graphsilo.run(**quick, **more, partition=partition, out=tmp_path / "run")
    assert [item.name for item in tmp_path.rglob("*") if item.is_file() and item.name != ".lock"] == []


def test_another_array_in_the_same_folder_is_refused(tmp_path):
    quick = {key: value for key, value in QUICK.items() if key not in ("partition", "clients")}
    graphsilo.run(**quick, partition=OWNERS, out=tmp_path)
    with pytest.raises(ConfigError, match="holds the result of another configuration, data set or partition"):
        graphsilo.run(**quick, partition=OWNERS[::-1].copy(), out=tmp_path, resume=True)
