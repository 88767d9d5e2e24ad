"""Every bound of every setting, overstepped through each door, is refused in the one wording with the dotted name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo import api
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import SECTIONS, load_config
from graphsilo.experiments.suggestions import every_group
from graphsilo.settings.words import rows

CHOICE = {"data": "data.name", "partition": "partition.rule", "model": "model.name", "method": "method.name"}
OWNERS = {"every data set": "citation-sbm", "unseen, open and receiver": "open"}
WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def bounds_of(field: Any) -> dict[str, float]:
    return {key: getattr(rule, key) for key in WORDS for rule in field.metadata if hasattr(rule, key)}


def cases() -> Iterator[tuple[str, Any, str, dict[str, str]]]:
    """Dotted name, a value beyond a bound, what the refusal says, and what has to be said with it."""
    for section, owner, kind in every_group():
        said = {CHOICE.get(section, "scenario.name"): OWNERS.get(owner, owner.partition(",")[0])} if owner else {}
        for name, field in kind.model_fields.items():
            bounds = bounds_of(field)
            whole = "float" not in str(field.annotation)
            shown = {key: f"{bound:g}" if isinstance(bound, float) else str(bound) for key, bound in bounds.items()}
            text = " and ".join(f"{WORDS[key]} {shown[key]}" for key in WORDS if key in bounds)
            for key, bound in bounds.items():
                value = bound - 1 if key == "ge" else bound + 1 if key == "le" else bound
                value = int(value) if whole else float(value)
                yield f"{section}.{name}", value, f"{section}.{name} must be {text}; got {value}.", said


CASES = list(cases())


def refusals(name: str, value: Any, said: dict[str, str], folder: Path) -> Iterator[str]:
    """What each door says."""
    tree: dict[str, Any] = {}
    for dotted, item in {**said, name: value}.items():
        section, _, key = dotted.partition(".")
        tree.setdefault(section, {})[key] = item
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    doors = (
        lambda: load_config(path),
        lambda: load_config(assignments=[f"{key}={json.dumps(item)}" for key, item in {**said, name: value}.items()]),
        lambda: api._configuration(None, api._parse_call(api.run, {**said, name: value}, folder)),
    )
    for door in doors:
        with pytest.raises(ConfigError) as caught:
            door().method_config()
        yield str(caught.value)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(section, marks=[pytest.mark.slow] if section == "method" else [])  # of all methods: the most
        for section in (*SECTIONS, "perturb")
    ],
)
def test_a_value_out_of_bounds_is_refused_in_one_wording(section: str, tmp_path: Path) -> None:
    mine = [case for case in CASES if case[0].partition(".")[0] == section]
    assert mine
    for name, value, text, said in mine:
        assert set(refusals(name, value, said, tmp_path)) == {text}, (name, said)


def test_every_bound_stands_in_the_tables() -> None:
    for section, owner, kind in every_group():
        allowed = {name: words for name, _, words, _, _ in rows(kind)}
        for name, field in kind.model_fields.items():
            for key, bound in bounds_of(field).items():
                shown = f"{bound:g}" if isinstance(bound, float) else str(bound)
                assert f"{SIGNS[key]} {shown}" in allowed[name], (section, owner, name)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"partition.rule": "dirichlet", "partition.alhpa": 1},
         "unknown setting 'partition.alhpa' for dirichlet; did you mean 'partition.alpha'?"),
        ({"model.hiden": 8}, "unknown setting 'model.hiden' for gcn; did you mean 'model.hidden'?"),
        ({"method.locl_epochs": 8},
         "unknown setting 'method.locl_epochs' for fedavg; did you mean 'method.local_epochs'?"),
        ({"data.homophilly": 1}, "unknown setting 'data.homophilly' for citation-sbm; did you mean 'data.homophily'?"),
        ({"data.scales": "none"}, "unknown setting 'data.scales' for citation-sbm; did you mean 'data.scale'?"),
        ({"data.name": "cora", "data.nodes": 8},
         "unknown setting 'data.nodes' for Cora; it is a setting of generated data (citation-sbm, heterophily-sbm, "
         "product-sbm, bank, hospital)."),
        ({"scenario.name": "open", "scenario.hop": 1},
         "unknown setting 'scenario.hop' for open; did you mean 'scenario.hops'?"),
        ({"perturb.edge_nose": 1}, "unknown setting 'perturb.edge_nose'; did you mean 'perturb.edge_noise'?"),
        ({"run.worker": 1}, "unknown setting 'run.worker'; did you mean 'run.workers'?"),
    ],
    ids=str,
)  # fmt: skip
def test_an_unknown_setting_is_refused_in_one_wording(said: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=said).method_config()
    assert str(caught.value) == text
