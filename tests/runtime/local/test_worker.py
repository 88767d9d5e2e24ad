"""What a worker does by itself."""

from __future__ import annotations

import signal
import time

import pytest


@pytest.mark.slow
def test_workers_leave_interruption_to_the_coordinator(spread, pool, troubled):
    _, federation = spread()
    for process in pool.processes:
        process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    assert len(federation.ask(troubled.Client.echo, troubled.Echo(client=0, round=0, process=0))) == 4
