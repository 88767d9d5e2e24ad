"""A provisioned federation of three silos with tables, and `graphsilo join` at each site."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.service.run_over import run_over
from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.remote.federation_file import FederationSpec
from kit import site_tables as tables


@dataclass
class Federation:
    """A provisioned federation with a process at each site."""

    folder: Path
    port: int
    joined: dict[str, subprocess.Popen] = field(default_factory=dict)
    prefix: dict[str, list[str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def join(self, site: str) -> None:
        """Start a site's process, as a person there would."""
        command = [sys.executable, "-m", "graphsilo", "join", str(self.folder / "kits" / site)]
        command += ["--silo", str(self.folder / site / "silo.yaml")]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.joined[site] = subprocess.Popen(
                [*self.prefix.get(site, []), *command], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, site: str) -> None:
        """Kill it with everything that hangs on it, as a power cut does."""
        os.killpg(self.joined[site].pid, signal.SIGKILL)
        self.joined[site].wait()

    def close(self) -> None:
        for process in self.joined.values():
            process.terminate()
        for process in self.joined.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def coordinator(self) -> Path:
        return self.folder / "kits" / "coordinator"

    def config(self, **overrides: Any) -> RunConfig:
        names = [str(self.folder / name / "tables.yaml") for name in tables.NAMES]
        return load_config(overrides=tables.short_settings(names, overrides))

    def carry_out(self, transport: NvflareTransport, config: RunConfig, out: str, **options: Any) -> Any:
        clients = {name: [number] for number, name in enumerate(tables.NAMES)}
        return run_over(
            transport, config, name="test", clients=clients, out=self.folder / out, wait=90, say=self.said.append,
            **options,
        ).tree  # fmt: skip


@contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder near the root: sockets have short paths."""
    with tempfile.TemporaryDirectory(prefix="gs-") as folder:
        yield Path(folder)


def make(folder: Path, host: str = "127.0.0.1") -> Federation:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for number, name in enumerate(tables.NAMES):
        tables.write_tables(folder / name, name, number)
    spec = {"name": "test", "coordinator": {"host": host, "port": port}, "silos": list(tables.NAMES)}
    provision(FederationSpec.of(spec), folder / "kits")
    return Federation(folder, port)
