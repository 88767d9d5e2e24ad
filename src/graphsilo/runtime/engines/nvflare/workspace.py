"""The engine's working folder, written from a kit before each start.

What the engine may do is thereby decided by the graphsilo that is installed at this very party, never by a file that
came with the kit: which component runs (our relay), that no component may be built for a job, that nobody may deploy a
job or send commands, that the connection is mutual TLS, and that none is made but the one to the coordinator.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from graphsilo.runtime import pipe
from graphsilo.runtime.certificates import write_private
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, COORDINATOR, KEY, ROOT, Kit

SOCKETS = {"coordinator": "relay.sock", "site": "site.sock"}
"""Who listens where, in ``KIT/run``: the engine's process at the coordinator, the supervisor at a site."""
SEEN = "seen"
"""In ``KIT/run`` of a site: its time of change is when the coordinator was last heard."""
_STARTUP = {"coordinator": "fed_server.json", "site": "fed_client.json"}
LOG, OUT = "engine.log", "engine.out"
_HEARTBEAT_SECONDS = 5.0
_MIB = 1 << 20


def socket_path(kit: Kit) -> Path:
    """Where the party's socket is.

    Raises:
        RunError: The kit lies so deep that no socket can be made in it.
    """
    return pipe.check_path(kit.run / SOCKETS[kit.role])


def write_workspace(kit: Kit) -> Path:
    """Write the engine's working folder into ``KIT/run/engine``; what an earlier run left there goes away.

    Returns:
        The folder.
    """
    folder = kit.run / "engine"
    shutil.rmtree(folder, ignore_errors=True)
    kit.run.mkdir(exist_ok=True, mode=0o700)
    for name in ("startup", "local", "transfer"):
        (folder / name).mkdir(parents=True, mode=0o700)
    for name in (ROOT, CERTIFICATE):
        shutil.copyfile(kit.folder / name, folder / "startup" / name)
    write_private(folder / "startup" / KEY, (kit.folder / KEY).read_bytes())
    _write(folder / "startup" / _STARTUP[kit.role], _startup(kit))
    _write(folder / "local" / "resources.json", _resources(kit))
    _write(folder / "local" / "authorization.json", {"format_version": "1.0", "permissions": {"nobody": "none"}})
    _write(folder / "local" / "comm_config.json", _COMMUNICATION)
    _write(folder / "local" / "log_config.json", _logging(kit.run / LOG))
    return folder


_TLS = {"ssl_private_key": KEY, "ssl_cert": CERTIFICATE, "ssl_root_cert": ROOT, "connection_security": "mtls"}

_COMMUNICATION = {
    "allow_adhoc_conns": False,
    "backbone_conn_gen": 2,
    # Where the processes of jobs would connect. There are none; what listens there still asks for our certificates.
    "internal": {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}},
    "streaming_max_blob_size": 1 << 32,
}

_PATIENCE = {
    "client_register_interval": 1.0,
    "maint_msg_timeout": 10.0,
    # By default a site gives up when the coordinator is not there within half a minute, and looks 200 times a second.
    "engine_create_timeout": 1e9,
    "cell_check_frequency": 0.1,
}

_RELAYS = "graphsilo.runtime.engines.nvflare.relay."
_NO_JOBS = {
    "format_version": 2,
    "class_list_enforcement_mode": "enforce",
    # Also governs what resources.json itself names; the components below are all there are.
    "class_allow_list": [_RELAYS],
}


def _startup(kit: Kit) -> dict[str, Any]:
    coordinator = kit.federation.coordinator
    # The engine listens at all addresses unless this one is a loopback address.
    service = {"target": f"{coordinator.hosts[0]}:{coordinator.port}", "scheme": "tcp"}
    server: dict[str, Any] = {"name": kit.federation.name, "service": service}
    if kit.role == COORDINATOR:
        server |= {"admin_server": COORDINATOR, "admin_port": coordinator.port, **_TLS}
        return {"format_version": 2, "servers": [server]}
    own = {**_TLS, "fqsn": kit.party, "is_leaf": True, "site_config": {}, **_PATIENCE}
    return {"format_version": 2, "servers": [{**server, "identity": COORDINATOR}], "client": own}


def _resources(kit: Kit) -> dict[str, Any]:
    arguments: dict[str, Any] = {"socket_path": str(socket_path(kit))}
    own: dict[str, Any]
    if kit.role == COORDINATOR:
        relay, arguments["sites"] = "CoordinatorRelay", list(kit.federation.sites)
        server = {
            "admin_storage": "transfer", "max_num_clients": 10_000, "heart_beat_timeout": 300, "admin_timeout": 10.0,
            "shutdown_period": 1.0,
        }  # fmt: skip
        own = {"servers": [server]}
    else:
        relay, arguments["seen_path"] = "SiteRelay", str(kit.run / SEEN)
        own = {"allow_log_streaming": False}
    component = {"id": "graphsilo_relay", "path": f"{_RELAYS}{relay}", "args": arguments}
    return {**_NO_JOBS, **own, "components": [component]}


def _logging(path: Path) -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "handlers": {
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "formatter": "plain",
                "filename": str(path),
                "maxBytes": 5 * _MIB,
                "backupCount": 2,
            }
        },
        "root": {"level": "INFO", "handlers": ["file"]},
    }


def arguments(kit: Kit, folder: Path) -> list[str]:
    """The engine's command line, without the interpreter and the module."""
    own = [] if kit.role == COORDINATOR else [f"uid={kit.party}", f"heart_beat_interval={_HEARTBEAT_SECONDS}"]
    common = ["secure_train=true", "org=graphsilo", "config_folder=config"]
    return ["-m", str(folder), "-s", _STARTUP[kit.role], "--set", *common, *own]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
