"""Three silos with tables of their own, and real supervisors that serve them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import run_over
from graphsilo.runtime.site.certified import Kits
from graphsilo.runtime.site.supervisor import SiteSupervisor
from graphsilo.runtime.transport import Transport
from kit.same_machine import SameMachine
from kit.site_tables import NAMES, numbers, short_settings, write_tables


@dataclass
class Sites:
    """Three sites on this machine."""

    folder: Path
    files: dict[str, Path]
    supervisors: dict[str, SiteSupervisor]
    said: list[str]

    @property
    def transport(self) -> SameMachine:
        return SameMachine({name: site.socket_path for name, site in self.supervisors.items()})

    @property
    def clients(self) -> dict[str, list[int]]:
        return {name: [number] for number, name in enumerate(NAMES)}

    def overrides(self, **overrides: Any) -> dict[str, Any]:
        """Settings of a short run over the same tables."""
        tables = [str(self.files[name].parent / "tables.yaml") for name in NAMES]
        given = {key.replace("__", "."): value for key, value in overrides.items()}
        return short_settings(tables, {"run.seeds": [0], **given})

    def config(self, **overrides: Any) -> RunConfig:
        """The same as a configuration, for one process or for the sites."""
        return load_config(overrides=self.overrides(**overrides))

    def carry_out(self, transport: Transport, out: Path, *, resume: bool = False, **overrides: Any) -> Any:
        """The result of such a run over the sites."""
        return run_over(
            transport, self.config(**overrides), name="test", clients=self.clients, out=out, resume=resume,
            say=self.said.append, wait=30,
        ).tree  # fmt: skip

    def alone(self, **overrides: Any) -> Any:
        """The result of the same run in one process."""
        return run(self.config(**overrides)).tree


def rounds(tree: Any) -> Any:
    """What is measured of a result in every round and in all, without times."""
    return [numbers(row) for row in tree["seeds"][0]["rounds"]], tree["summary"]["test"]


@contextmanager
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Sites]]:
    """Starts supervisors; ``policies`` gives some silos one, ``kits`` some sites what their kits say."""
    with ExitStack() as stack:

        def make(policies: dict[str, dict[str, Any]] | None = None, kits: Mapping[str, Kits] | None = None) -> Sites:
            tmp_path = tmp_path_factory.mktemp("sites")
            files, supervisors, said = {}, {}, []
            for number, name in enumerate(NAMES):
                folder = tmp_path / name
                files[name] = write_tables(folder / "data", name, number, linked=True)
                if policies and name in policies:
                    tree = yaml.safe_load(files[name].read_text())
                    files[name].write_text(yaml.safe_dump({**tree, "policy": policies[name]}))
                site = SiteSupervisor(
                    name, [(number, files[name])], folder, say=said.append, kits=(kits or {}).get(name)
                )
                stack.callback(site.close)
                site.start()
                supervisors[name] = site
            return Sites(tmp_path, files, supervisors, said)

        yield make


@pytest.fixture(scope="module")
def make_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Sites]]:
    """``started``; they end with the module."""
    with started(tmp_path_factory) as make:
        yield make


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="gs") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Sites that many tests share, since a worker takes seconds to start."""
    with started(tmp_path_factory) as make:
        yield make()


@pytest.fixture
def sites(standing: Sites) -> Sites:
    """The same, with nothing said yet."""
    standing.said.clear()
    return standing


def coordinator(sites: Sites, out: Path, resume: str, overrides: dict[str, Any], *step: str) -> subprocess.Popen[str]:
    """A coordinator in a process of its own, to be killed, or to kill itself at a step; prints its rounds."""
    sockets = {name: str(site.socket_path) for name, site in sites.supervisors.items()}
    script = Path(__file__).with_name("site_coordinator.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(out), resume, json.dumps(sockets), json.dumps(overrides), *step],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def to_be_killed(sites: Sites, name: str) -> Iterator[Callable[[], None]]:
    """A site's supervisor in a process of its own; what is yielded kills it, and starts it again at once."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> None:
        sites.supervisors[name].close()
        script = Path(__file__).with_name("site_supervisor_process.py")
        process = subprocess.Popen(
            [sys.executable, str(script), name, str(sites.clients[name][0]), str(sites.files[name]),
             str(sites.folder / name)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        processes.append(process)

    def strike() -> None:
        processes[-1].kill()
        processes[-1].wait()
        again = threading.Thread(target=start)
        again.start()
        threads.append(again)

    threads: list[threading.Thread] = []
    start()
    try:
        yield strike
    finally:
        for again in threads:
            again.join()
        for process in processes:
            process.kill()
            process.wait()
