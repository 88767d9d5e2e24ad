"""The rules that keep the parts apart, checked on the source itself."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphsilo
from graphsilo.__about__ import __version__
from graphsilo.data.sources.catalog import load
from graphsilo.federation import registry
from graphsilo.federation.client import ClientBase
from graphsilo.federation.message import KINDS
from graphsilo.federation.server import ServerBase

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCE = CHECKOUT / "src" / "graphsilo"
DOCS = CHECKOUT / "docs"
MODULES = sorted(SOURCE.rglob("*.py"))
METHOD_FILES = [path for path in MODULES if path.is_relative_to(SOURCE / "methods")]
# A rule looks at its files in one test: a test for each of them would take longer than the rule.

LIGHT_PACKAGES = ("cli", "report", "evaluate", "data")
"""Rooms whose import must not bring torch: a command that only prints answers at once."""
LIGHT = [path for path in MODULES if path.relative_to(SOURCE).parts[0] in LIGHT_PACKAGES]


@functools.cache  # several rules look at the same file
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def dotted_name(node: ast.expr) -> str:
    """What is called, such as torch.load."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imports_at_top(tree: ast.Module) -> Iterator[str]:
    """Modules that importing this one imports: not those under ``if TYPE_CHECKING`` or inside functions."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            todo += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.With):
            todo += node.body


def test_rooms_import_downwards_only() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_is_in_the_contract() -> None:
    import tomllib

    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = {part.strip() for layer in settings["contracts"][0]["layers"] for part in layer.split("|")}
    rooms = {
        f"graphsilo.{path.stem}"
        for path in SOURCE.iterdir()
        if path.name not in ("__init__.py", "__about__.py", "__main__.py", "__pycache__", "py.typed")
    }
    assert rooms == layers


def test_nothing_is_unpickled() -> None:
    """No wire, checkpoint, cache or data file can run code when it is read."""
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}, (
                    f"{path}:{node.lineno} imports a pickle"
                )
            if isinstance(node, ast.Call):
                called = dotted_name(node.func)
                given = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
                if called == "torch.load":
                    assert given.get("weights_only") is True, (
                        f"{path}:{node.lineno}: torch.load needs weights_only=True"
                    )
                if called in ("torch.save", "np.load", "numpy.load") or "allow_pickle" in given:
                    assert called != "torch.save", (
                        f"{path}:{node.lineno}: torch.save pickles; use safetensors or the codec"
                    )
                    assert given.get("allow_pickle") is False, f"{path}:{node.lineno}: say allow_pickle=False"
                if called.startswith("yaml."):
                    assert path == SOURCE / "documents.py", f"{path}:{node.lineno}: use graphsilo.documents for YAML"


def test_light_rooms_do_not_import_torch() -> None:
    heavy = {"torch", "torch_geometric", "sklearn", "sknetwork", "pandas"}
    for path in LIGHT:
        found = {module.partition(".")[0] for module in imports_at_top(tree_of(path))} & heavy
        assert not found, f"{name_of(path)} imports {', '.join(found)} at the top; import it where it is used"


def test_importing_the_command_line_does_not_import_torch() -> None:
    heavy = ("torch", "torch_geometric", "sklearn", "sknetwork", "pyarrow", "matplotlib")
    code = f"import sys, json, graphsilo.cli; print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_listing_methods_does_not_import_torch() -> None:
    code = "import sys; from graphsilo.federation import registry; registry.names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


MOST_LINES = 20_450
"""Of graphsilo that FedAvg on Cora imports: who follows one run passes through nothing that it does not use."""
IMPORTED = """
import json, sys
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
run(load_config({"data.name": "Cora", "method.name": "fedavg", "method.rounds": 1, "partition.clients": 3}))
print(json.dumps([m.__file__ for name, m in sys.modules.items() if name.split(".")[0] == "graphsilo"]))
"""


def test_a_simple_run_imports_only_what_it_uses(data_root: Path) -> None:
    """What a setting needs is loaded where the setting is looked at: once, and by nothing that every run imports."""
    load("Cora", root=data_root)  # raw files are converted once
    environment = {**os.environ, "GRAPHSILO_DATA": str(data_root)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=environment, capture_output=True, text=True, check=True
    )  # fmt: skip
    files = json.loads(done.stdout)
    lines = {file: len(Path(file).read_text(encoding="utf-8").splitlines()) for file in files}
    assert sum(lines.values()) <= MOST_LINES, sorted(lines.items(), key=lambda each: -each[1])[:20]


LINES_OF_A_METHOD = 420
"""At most, in the mean over all methods: most are shorter, and a new one is to take 300."""


def test_methods_do_not_grow() -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in METHOD_FILES)
    assert lines <= LINES_OF_A_METHOD * len(registry.names())


def test_the_rules_for_methods_see_all_their_files() -> None:
    """Every method's client and server stand in a file that the tests below look at."""
    seen = {path.resolve() for path in METHOD_FILES}
    for name in registry.names():
        method = registry.load(name)
        for part in (method.config, method.client, method.server):
            if part.__module__.startswith("graphsilo.methods."):
                assert Path(str(sys.modules[part.__module__].__file__)).resolve() in seen, (name, part)
    assert len({path.relative_to(SOURCE / "methods").parts[0] for path in METHOD_FILES}) == len(registry.names()) + 1


def test_methods_use_each_other_only_as_bases() -> None:
    """What two methods share stands in training/: a method imports another one's entry, never its numerics."""
    for path in METHOD_FILES:
        own = path.relative_to(SOURCE / "methods").parts[0].removesuffix(".py")
        for module in imports_at_top(tree_of(path)):
            parts = module.split(".")
            if parts[:2] == ["graphsilo", "methods"] and parts[2:3] not in ([own], []):
                assert len(parts) == 3, f"{name_of(path)} imports {module}"


SERVER_SEES_NO = ("Silo", "EvaluationSet", "Graph", "GraphCollection", "GraphTensors", "InProcess", "WorkerPool")
"""What stays at clients, and the runtimes through which a server could reach around the Federation."""


def test_servers_see_no_silo() -> None:
    """A server class names no data of a client, builds no client, and takes nothing of one but its handlers."""
    for path in METHOD_FILES:
        for server in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)):
            if not any("Server" in ast.unparse(base) for base in server.bases):
                continue
            for node in ast.walk(server):
                where = f"{path}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.Name | ast.Attribute):
                    word = node.id if isinstance(node, ast.Name) else node.attr
                    assert word not in SERVER_SEES_NO, f"{where}: the server mentions {word}"
                    assert word not in ("silo", "silos", "inner", "_clients"), f"{where}: the server reaches for {word}"
                if isinstance(node, ast.Call):
                    called = ast.unparse(node.func)
                    assert called.rpartition(".")[2] not in ("Client", "ClientContext"), (
                        f"{where}: the server builds {called}"
                    )


def test_clients_see_no_server() -> None:
    """A client class reaches neither the server nor the federation, hence no other client."""
    for path in METHOD_FILES:
        for client in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)):
            if not any("Client" in ast.unparse(base) for base in client.bases):
                continue
            for node in ast.walk(client):
                if isinstance(node, ast.Name | ast.Attribute):
                    word = node.id if isinstance(node, ast.Name) else node.attr
                    assert word not in ("Server", "ServerBase", "ServerContext", "Federation", "federation"), (
                        f"{path}:{node.lineno}: the client mentions {word}"
                    )


def test_methods_do_not_know_where_they_run() -> None:
    upwards = ("graphsilo.runtime", "graphsilo.experiments", "graphsilo.report", "graphsilo.cli")
    for path in METHOD_FILES:
        found = [module for module in imports_at_top(tree_of(path)) if module.startswith(upwards)]
        assert not found, f"{name_of(path)} imports {found[0]}"


@pytest.mark.parametrize("name", registry.names())
def test_methods_are_complete(name: str) -> None:
    """Citation, settings that say where their default comes from or what they do, and a page of documentation."""
    method = registry.load(name)
    assert issubclass(method.client, ClientBase)
    assert issubclass(method.server, ServerBase)
    assert method.citation
    assert method.summary.endswith(".")
    for setting, field in method.config.model_fields.items():
        assert field.description, f"{name}.{setting} has no description"
    page = DOCS / "methods" / f"{name}.md"
    assert page.is_file(), f"docs/methods/{name}.md is missing"
    text = page.read_text(encoding="utf-8")
    assert f"<!-- settings: {name} -->" in text, f"{page} does not show the settings"
    assert f"<!-- messages: {name} -->" in text, f"{page} does not show what is sent"


def test_raw_data_has_no_kind_of_disclosure() -> None:
    """Features and labels of nodes cannot be declared, hence cannot be sent."""
    assert set(KINDS) == {
        "model", "gradient", "prototype", "statistic", "embedding", "generator", "synthetic", "counts", "topology",
        "logits", "score", "control",
    }  # fmt: skip
    privacy = (DOCS / "privacy.md").read_text(encoding="utf-8")
    assert "<!-- kinds -->" in privacy


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z0-9.]*)", __version__)
    project = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(r'^version\s*=\s*"', project, flags=re.MULTILINE)
    assert 'path = "src/graphsilo/__about__.py"' in project
    elsewhere = [
        name_of(path)
        for path in MODULES
        if path.name != "__about__.py" and re.search(rf'["\']{re.escape(__version__)}["\']', path.read_text("utf-8"))
    ]
    assert not elsewhere
    assert getattr(graphsilo, "__version__", __version__) == __version__
    assert f"[{__version__}]" in (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")


MIRRORED = 0.85
"""Share of the modules with a function whose test stands in the same place under tests/."""


def test_the_test_of_a_module_is_found_by_its_name() -> None:
    """``src/graphsilo/a/b.py`` is tested in ``tests/a/test_b.py``."""
    modules = [
        path.relative_to(SOURCE)
        for path in MODULES
        if not path.name.startswith("__")
        and any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree_of(path)))
    ]
    lacking = [path for path in modules if not (CHECKOUT / "tests" / path.parent / f"test_{path.name}").exists()]
    share = 1 - len(lacking) / len(modules)
    assert len(modules) > 250
    assert share >= MIRRORED, f"{share:.1%}; without a test of their name: {', '.join(map(str, lacking))}"
