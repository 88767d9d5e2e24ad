"""Tables made from the code name everything that the code has, and every page gets the tables it asks for."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import graphsilo
from graphsilo import models
from graphsilo.attacks import findings
from graphsilo.data.partition import rules
from graphsilo.data.partition.graphs import graph_rules
from graphsilo.data.silos.perturb import PerturbOptions
from graphsilo.data.silos.scenarios import SCENARIOS
from graphsilo.data.sources import catalog
from graphsilo.data.sources.generated import generators
from graphsilo.experiments.config import SECTIONS, RunConfig
from graphsilo.experiments.storage import records
from graphsilo.experiments.suggestions import every_group
from graphsilo.federation import registry
from graphsilo.federation.message import KINDS


def first_cells(table: str) -> list[str]:
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return [row.split("|")[1].strip().strip("`") for row in rows]


def test_table_is_markdown(reference: ModuleType) -> None:
    made = reference.table(("a", "b"), [(1, "x|y"), (2, "two\nlines")], align="r")
    assert made == "| a | b |\n|---:|---|\n| 1 | x\\|y |\n| 2 | two lines |"


def test_every_setting_stands_on_one_page(reference: ModuleType) -> None:
    made = reference.every_setting()
    wanted = [name for name in RunConfig.model_fields if name not in SECTIONS]
    wanted += [f"{section}.{name}" for section, _, kind in every_group() for name in kind.model_fields]
    assert first_cells(made) == wanted
    assert "| `partition.alpha` | `10.0` | number > 0 |" in made


def test_catalog_has_every_data_set(reference: ModuleType) -> None:
    assert sorted(first_cells(reference.catalog())) == sorted(item.name for item in catalog.names())


@pytest.mark.parametrize("name", generators())
def test_every_setting_of_generated_data(reference: ModuleType, name: str) -> None:
    assert first_cells(reference.generator(name)) == list(generators()[name].model_fields)


def test_what_attacks_found_has_a_row_per_method_and_variant(reference: ModuleType) -> None:
    made = reference.attacks()
    coordinator, silo, reader = made.split("### ")[1:]
    assert coordinator.startswith("The coordinator")
    assert silo.startswith("Another silo")
    assert reader.startswith("A reader of the saved model")
    rows = [line.split("|")[1].strip() for line in coordinator.splitlines() if line.startswith("| ")]
    wanted = {(each.method, each.variant) for each in findings.load() if each.attacker == "coordinator"}
    names = [registry.load(method).title + (f", {variant}" if variant else "") for method, variant in wanted]
    assert rows[:2] == ["method", "without the run"]
    assert sorted(rows[2:]) == sorted(names)


def test_every_rule_with_its_options(reference: ModuleType) -> None:
    made = reference.rules()
    assert [line[5:-1] for line in made.splitlines() if line.startswith("### ")] == [rule.name for rule in rules()]
    for rule in rules():
        section = made.split(f"### `{rule.name}`\n")[1].split("\n### ")[0]
        assert first_cells(section) == list(rule.options.model_fields)
    assert first_cells(reference.graph_rules()) == [rule.name for rule in graph_rules()]


def test_every_model_with_its_settings(reference: ModuleType) -> None:
    made = reference.models()
    for name in models.names():
        section = made.split(f"### `{name}`\n")[1].split("\n### ")[0]
        assert first_cells(section) == list(models.entry(name).settings.model_fields)
    assert first_cells(reference.pools()) == list(models.pools())


def test_every_scenario_perturbation_and_kind(reference: ModuleType) -> None:
    assert first_cells(reference.scenarios()) == list(SCENARIOS)
    assert first_cells(reference.kinds()) == list(KINDS)
    assert first_cells(reference.named("graphsilo.data.silos.perturb:PerturbOptions")) == list(
        PerturbOptions.model_fields
    )


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_and_message_of_a_method(reference: ModuleType, name: str) -> None:
    assert first_cells(reference.settings(name)) == list(registry.load(name).config.model_fields)
    assert "to the client" in reference.messages(name)
    assert "to the server" in reference.messages(name)


def test_the_page_of_every_method_is_in_the_navigation_and_the_index(reference: ModuleType) -> None:
    sections = reference.on_config({"nav": [{"Home": "index.md"}, {"Methods": ["methods/index.md", "last.md"]}]})["nav"]
    first, *families, last = sections[1]["Methods"]
    assert (first, last) == ("methods/index.md", "last.md")
    assert next(iter(families[0])) == "One round"
    pages = [page for family in families for paths in family.values() for page in paths]
    assert sorted(pages) == sorted(f"methods/{name}.md" for name in registry.names())
    rows = reference.methods().splitlines()
    assert len(rows) == 2 + len(pages)
    assert "| [FedGTA](fedgta.md) | silos that are unlike | " in "".join(rows)
    assert next(row for row in rows if row.startswith("| [FedKD](fedkd.md) |")).endswith("| node, graph | no | yes |")


def test_messages_of_fedavg(reference: ModuleType) -> None:
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in reference.messages("fedavg").splitlines()[2:]]
    assert rows == [
        ["`train`", "to the client", "`TrainRequest`", "`weights`", "named tensors", "`model`"],
        ["`train`", "to the server", "`TrainReply`", "`weights`", "named tensors",
         "`model`, counted `num_samples` times in the sum"],
        ["`train`", "to the server", "`TrainReply`", "`num_samples`", "number", "`counts`"],
    ]  # fmt: skip


def every_command(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Commands, those inside groups too, by what is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def test_every_option_of_every_command(reference: ModuleType) -> None:
    import typer

    from graphsilo.cli.app import app

    made = reference.commands()
    group = typer.main.get_command(app)
    assert "run" in group.commands  # type: ignore[attr-defined]
    assert "silo check" in dict(every_command(group))
    for name, command in every_command(group):
        section = made.split(f"### `graphsilo {name}`\n")[1].split("\n### ")[0]
        for parameter in command.params:
            words = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
            for word in words:
                assert f"`{word}`" in section.replace("\\|", "|")
            assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"


def test_every_decision_has_its_line(reference: ModuleType, checkout: Path) -> None:
    first, *others = reference.decisions().splitlines()
    assert first.startswith("- [001: a message is the only way out of a silo")
    assert len(others) + 1 == len(list((checkout / "docs" / "decisions").glob("0*.md")))


def test_every_room_says_what_is_in_it(reference: ModuleType, checkout: Path) -> None:
    folders = {path.name for path in (checkout / "src" / "graphsilo").iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(first_cells(reference.rooms()))
    assert {"batch", "seed", "service"} <= set(first_cells(reference.rooms("experiments")))


def test_every_file_of_numbers_stands_on_a_page(reference: ModuleType, checkout: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (checkout / "docs").rglob("*.md"))
    asked = {found["argument"] for found in reference.MARKER.finditer(pages) if found["name"] == "measured"}
    assert {path.stem for path in (checkout / "docs" / "measured").glob("*.csv")} == asked
    assert reference.measured("workers").startswith("| speed-up | methods |\n|---|---|\n| above 1.8 | FedStar")


def test_every_marker_of_every_page_is_replaced(reference: ModuleType, checkout: Path) -> None:
    for page in sorted((checkout / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for found in reference.MARKER.finditer(text):
            assert found["name"] in reference.TABLES, f"{page} asks for {found[0]}"
        assert not reference.MARKER.search(reference.on_page_markdown(text))


def test_unknown_markers_stop_the_build(reference: ModuleType) -> None:
    with pytest.raises(ValueError, match="no table 'catalogue'"):
        reference.on_page_markdown("<!-- catalogue -->")


def test_small_classes_sort_every_federated_method(reference: ModuleType) -> None:
    rows = [line.strip("| ").split(" | ") for line in reference.small_classes().splitlines()[2:]]
    takes_part, with_minimum, refused = (set(titles.split(", ")) for titles, _ in rows)
    assert {"FedAvg", "FedGCN"} <= takes_part
    assert {"FedRidge", "FedProto"} <= with_minimum
    assert {"FedLoG", "DENSE"} <= refused
    methods = [registry.load(name) for name in registry.names()]
    assert sorted([*takes_part, *with_minimum, *refused]) == sorted(
        method.title for method in methods if not (method.pooled or method.alone)
    )


@pytest.mark.parametrize("name", ["RunRecord", "Seed", "Round"])
def test_every_field_of_a_result_is_explained(reference: ModuleType, name: str) -> None:
    made = reference.record(name)
    keys = {key.strip("`") for row in made.splitlines()[2:] for key in row.split("|")[1].strip().split(", ")}
    assert keys == set(getattr(records, name).__struct_fields__)


@pytest.mark.slow
def test_examples_in_docstrings_give_what_they_say() -> None:
    package = Path(graphsilo.__file__).parent
    tried = 0
    for path in sorted(package.rglob("*.py")):
        if ">>> " in path.read_text():
            name = ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
            outcome = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
            assert not outcome.failed, name
            tried += outcome.attempted
    assert tried > 100
