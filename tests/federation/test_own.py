"""Where things of a person's own are found again, and when they are no longer what they were."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from torch import nn

from graphsilo.errors import ConfigError
from graphsilo.federation import registry, trust
from graphsilo.federation.own import Own, address_of, admit, bring, class_at, is_findable, place_of
from kit.own import NET, RULE, written


class Here(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.lin(x)


def test_plain_names_are_left_alone():
    for value in ("gcn", "louvain+", "metis", "no_such", 3, None, ["a"]):
        assert bring("model", value) is None


def test_places():
    fedavg = registry.load("fedavg")
    assert place_of(fedavg) == "graphsilo.methods.fedavg:METHOD"
    assert place_of(nn.Linear) == "torch.nn.modules.linear:Linear"
    assert place_of(Here) in (f"{__file__}:Here", f"{__name__}:Here")
    inside = place_of(lambda inputs, outputs: None)
    assert (inside, is_findable(inside)) == (f"{__name__}:<test_places.locals.lambda>", False)
    assert not is_findable("__main__:Net")


def test_what_graphsilo_has_is_named_alone():
    assert bring("method", registry.load("fedprox")) == ("fedprox", None)


def test_an_installed_class_needs_no_hash():
    name, own = bring("model", "torch.nn:Linear", named=True)
    assert (name, own) == ("nn.Linear", Own("torch.nn:Linear", ""))


def test_a_file_that_changes_is_another_module(tmp_path):
    path = written(tmp_path, "net.py", NET)
    _, before = bring("model", str(path), named=True)
    admit("model", "net.Net", before)
    written(tmp_path, "net.py", NET + "\nCHANGED = True\n")
    _, after = bring("model", str(path), named=True)
    assert before.place == after.place == f"{path}:Net"
    assert before.sha256 != after.sha256
    with pytest.raises(
        ConfigError, match=r"model 'net\.Net' has changed since the run was begun.*--model .*net\.py:Net"
    ):
        admit("model", "net.Net", before)


def test_code_of_a_session_is_known_by_what_it_does():
    def first(inputs, outputs, width=3):
        return nn.Linear(inputs, outputs + 0 * width)

    def same():
        def first(inputs, outputs, width=3):
            return nn.Linear(inputs, outputs + 0 * width)

        return first

    def other(inputs, outputs, width=4):
        return nn.Linear(inputs, outputs + 0 * width)

    digests = [bring("model", thing)[1].sha256 for thing in (first, same(), other)]
    assert digests[0] == digests[1] != digests[2]


def test_siblings_are_imported_and_the_path_is_left_as_it_was(tmp_path):
    written(tmp_path, "beside_it.py", "WIDTH = 5\n")
    path = written(tmp_path, "uses.py", f"from beside_it import WIDTH\n{RULE}")
    before = list(sys.path)
    assert bring("partition", str(path), named=True)[0] == "uses.bands"
    assert sys.path == before


def test_classes_have_one_module_in_every_process(tmp_path, monkeypatch):
    path = written(tmp_path, "own_classes_here.py", "class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = importlib.import_module("own_classes_here").Mine
    address = address_of(kind)
    assert address == ["own_classes_here", "Mine", str(path)]
    program = (
        "from graphsilo.federation import trust\n"
        "from graphsilo.federation.own import class_at\n"
        f"trust.allow({trust.list_allowed()!r})\n"
        f"found = class_at(*{address!r})\nprint(found.__module__, found.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["own_classes_here", "Mine"]
    with pytest.raises(ConfigError, match="the module nowhere_at_all cannot be imported"):
        class_at("nowhere_at_all", "Mine", "")
    with pytest.raises(ConfigError, match="there is no 'Yours'"):
        class_at("own_classes_here", "Yours", "")
