"""What the engine's process, the one with a network connection, is told."""

from __future__ import annotations

from graphsilo.runtime.engines.nvflare.keeper import _filter_environment


def test_the_engine_gets_no_secret_of_the_environment() -> None:
    known = {
        "PATH": "/bin", "HOME": "/root", "LC_ALL": "C", "PYTHONPATH": "src", "https_proxy": "http://proxy:3128",
        "TMPDIR": "/tmp",
    }  # fmt: skip
    secret = {
        "WARD_DB": "postgresql://nurse:secret@db/ward", "PGPASSWORD": "secret", "AWS_SECRET_ACCESS_KEY": "x",
        "SSL_CERT_FILE": "/etc/ca.pem", "NVFL_ADMIN": "1", "PATHOLOGY_TOKEN": "x", "GRAPHSILO_DATA": "/data",
    }  # fmt: skip
    assert _filter_environment({**known, **secret}) == known
