from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import ConfigError
from graphsilo.runtime.remote.federation_file import FederationSpec, load_federation

GOOD: dict[str, Any] = {
    "name": "demo",
    "coordinator": {"host": "fed.example.org", "port": 8102},
    "silos": [{"name": "north"}, {"name": "south-a", "site": "south"}, {"name": "south-b", "site": "south"}],
}


def test_silos_keep_their_order_and_sites_appear_once() -> None:
    spec = FederationSpec.of(GOOD)
    assert [silo.name for silo in spec.silos] == ["north", "south-a", "south-b"]
    assert spec.sites == ("north", "south")
    assert (spec.engine, spec.coordinator.port, spec.silos[0].may_send) == ("nvflare", 8102, None)


def test_a_file_is_read_and_short_forms_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text("name: demo\ncoordinator: {host: [fed.example.org, 10.0.0.7]}\nsilos: [north, south]\n")
    spec = load_federation(path)
    assert spec.coordinator.hosts == ("fed.example.org", "10.0.0.7")
    assert [silo.site for silo in spec.silos] == ["north", "south"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nmae": "x"}, "unknown setting 'nmae'; did you mean 'name'?"),
        ({"silos": [{"name": "north", "sight": "x"}]}, "unknown setting 'silos.0.sight'; did you mean 'silos.0.site'?"),
        ({"coordinator": {"host": "a", "prot": 1}}, "did you mean 'coordinator.port'?"),
        ({"silos": []}, "silos must be a list of one or more tables of settings; got []."),
        ({"silos": ["north", "north"]}, "two silos are named 'north'"),
        ({"silos": ["North"]}, "got 'North'"),
        ({"silos": ["coordinator"]}, "no silo can be named 'coordinator'"),
        ({"silos": [{"name": "a", "site": "root"}]}, "no site can be named 'root'"),
        ({"name": "my federation"}, "the name of a federation should have"),
        ({"coordinator": {"port": 1}}, "coordinator.host is missing; it must be text or a list of one or more texts."),
        ({"coordinator": {"host": "fed.example.org:80"}}, "without a port"),
        ({"coordinator": {"host": "a", "port": 0}}, "coordinator.port must be at least 1 and at most 65535; got 0."),
        ({"engine": "mail"}, "engine must be one of nvflare, flower; got 'mail'."),
    ],
)
def test_what_is_wrong_is_said_in_one_paragraph(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FederationSpec.of({**GOOD, **change})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "name: [", ""])
def test_a_file_that_describes_no_federation(tmp_path: Path, text: str) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        load_federation(path)
