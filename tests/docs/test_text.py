"""What people read is true: commands parse, links lead somewhere, examples run."""

from __future__ import annotations

import functools
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo.data import partition
from graphsilo.data.partition.graphs import graph_rules
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.effects import drop_idle
from graphsilo.federation import registry

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "examples"
LOOPS = {"$data": "Cora", "$method": "fedavg"}
"""Variables of the loops that pages show, and a value of each."""
TEXTS = [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every ``graphsilo`` command in a shell block or a table, and every make target."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"`((?:graphsilo|make) [^`]*)`", text)
        for line in lines:
            words = [LOOPS.get(word, word) for word in shlex.split(line.removeprefix("$ "), comments=True)]
            if words and words[0] in ("graphsilo", ".venv/bin/graphsilo", "make"):
                yield path.name, words


COMMANDS = list(commands())


@functools.cache
def command_line() -> Any:
    """Of ``graphsilo``."""
    import typer

    from graphsilo.cli.app import app

    return typer.main.get_command(app)


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=f"{page}: {' '.join(words)}") for page, words in COMMANDS if words[0] != "make"]
)
def test_commands_parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The option exists, and for runs the whole configuration is valid."""
    from graphsilo.cli import run as run_module

    checked: list[RunConfig] = []

    def check(path: Path | None, *, overrides: Any, assignments: Any, **_: Any) -> None:
        file = None if path is None or not (EXAMPLES / path.name).exists() else EXAMPLES / path.name
        config = load_config(file, overrides=overrides, assignments=assignments)
        config.method_config()
        drop_idle(config, out=EXAMPLES)  # nothing that would have no effect
        checked.append(config)

    monkeypatch.setattr(run_module, "run_command", check)
    monkeypatch.chdir(EXAMPLES)  # where the pages' own files are
    group = command_line()
    arguments = [word for word in words[1:] if word not in ("...", "DIR...", "COMMAND")]
    if words[1:2] == ["run"]:
        group.main(arguments, prog_name="graphsilo", standalone_mode=False)
        assert checked
    elif arguments and arguments[0].islower() and "--help" not in arguments:
        command: Any = group
        while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
            command = command.commands[arguments.pop(0)]
        known = {word for parameter in command.params for word in parameter.opts}
        assert {word.split("=")[0] for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize(
    "words", [pytest.param(words, id=" ".join(words)) for _, words in COMMANDS if words[0] == "make"]
)
def test_make_targets_exist(words: list[str]) -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert {word for word in words[1:] if "=" not in word} <= targets


def named_tests() -> Iterator[tuple[str, str]]:
    """File and function of every test that a page names; a name without a file is of the one before it in its line."""
    for path in TEXTS:
        for line in path.read_text(encoding="utf-8").splitlines():
            file = ""
            for found, name in re.findall(r"`([\w/]*(?:\.py)?)::(test_\w+)`", line):
                file = found or file
                yield file, name


NAMED = list(named_tests())


def test_promises_name_their_tests() -> None:
    """Every line of the table of who lies names one."""
    text = (CHECKOUT / "docs" / "privacy.md").read_text(encoding="utf-8")
    table = text.split("## Who lies, and what is promised")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert all("::test_" in line for line in rows)


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_tests_that_are_named_exist(file: str, name: str) -> None:
    source = (CHECKOUT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^def {name}\(", source, flags=re.MULTILINE), f"{file} has no {name}"


def test_the_readme_counts_methods() -> None:
    count = sum(each.source == "graphsilo" for each in registry.listings())
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert f"the {count} methods of `graphsilo list methods`" in readme


def test_the_readme_counts_rules() -> None:
    count = len({rule.name for rule in partition.rules()} - set(partition.list_added())) + len(graph_rules())
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert f"the {count} rules of `graphsilo list partitions`" in readme


def test_the_readme_names_two_commands() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert "make quickstart" in text
    assert "make test" in text


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for address in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not address.startswith("http"):
            target = path.parent / address
            source = target.with_suffix(".ipynb")  # of a page that is made when the site is built
            assert target.exists() or source.exists(), f"{path.name} links to {address}"


def test_the_readme_shows_the_example() -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    source = (EXAMPLES / "first_run.py").read_text(encoding="utf-8")
    shown = source.split("# --8<-- [start:run]\n")[1].split("# --8<-- [end:run]")[0]
    assert f"```python\n{shown}```" in readme


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_run.py", "run_own_method.py"])
def test_examples_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_own_method_is_short() -> None:
    assert len((EXAMPLES / "own_method.py").read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.slow
def test_the_own_method_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedDyn, the other one, goes through what all methods do: ``methods/test_held_out.py``."""
    from graphsilo.testing.conformance import check_method

    monkeypatch.syspath_prepend(str(EXAMPLES))
    check_method(importlib.import_module("own_method").METHOD)


def test_the_example_configuration_is_valid() -> None:
    config = load_config(EXAMPLES / "cora.yaml")
    assert config.method_config().model_dump()["mu"] == 0.01
    assert config.data.options == {}


def test_the_example_tables_load() -> None:
    from graphsilo.data import load

    graph = load(str(EXAMPLES / "tables" / "hospital.yaml"))
    spec = yaml.safe_load((EXAMPLES / "tables" / "hospital.yaml").read_text(encoding="utf-8"))
    assert graph.class_names == tuple(spec["classes"])
    assert (graph.num_nodes, graph.num_features) == (60, 5)


def test_nothing_of_one_machine() -> None:
    """No folder of one machine and no address of a package registry in what is published."""
    places = [CHECKOUT / name for name in ("Makefile", "mkdocs.yml", "pyproject.toml", "constraints.txt")]
    places += [*TEXTS, *(CHECKOUT / "scripts").iterdir(), *EXAMPLES.rglob("*.*"), CHECKOUT / ".ci" / "run"]
    pattern = re.compile(
        r"(?<![\w.])/(work|farm|tmp|root|home)/|files\.pythonhosted|pypi\.org/simple|download\.pytorch"
    )
    for place in places:
        if place.is_file() and place.suffix != ".pyc":
            found = pattern.search(place.read_text(encoding="utf-8"))
            assert found is None, f"{place}: {found[0] if found else ''}"


def test_a_method_s_page_is_read_at_one_sitting() -> None:
    for page in sorted((CHECKOUT / "docs" / "methods").glob("*.md")):
        words = len(page.read_text(encoding="utf-8").split())
        assert words <= (900 if page.stem == "index" else 700), f"{page.name} has {words} words"


def test_the_documentation_is_short() -> None:
    """What a page gains another one loses; tables that are made from code and measured numbers do not count."""
    pages = [page for pattern in ("*.md", "*/*.md") for page in (CHECKOUT / "docs").glob(pattern)]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 60_000


def test_the_guided_reading_is_short_and_names_what_is_there() -> None:
    text = (CHECKOUT / "docs" / "development.md").read_text(encoding="utf-8")
    reading = text.split("## A guided reading")[1].split("\n## ")[0]
    assert len(reading.split()) <= 400
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`, (.*?):", reading, flags=re.MULTILINE)
    sources = {path: (CHECKOUT / "src" / "graphsilo" / path).read_text(encoding="utf-8") for path, _ in steps}
    assert len(steps) == len(sources) == 10
    assert sum(len(source.splitlines()) for source in sources.values()) <= 3000
    for path, words in steps:
        for name in re.findall(r"`([\w.]+)`", words):
            defined = rf"^ *(def|class) {name.rpartition('.')[2]}\b"
            assert re.search(defined, sources[path], flags=re.MULTILINE), f"{path} has no {name}"
