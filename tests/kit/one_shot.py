"""Methods with one round and long work at the server."""

from __future__ import annotations

import pytest

from kit.stopped import Stop

SHORT = {"local_epochs": 5, "epochs": 3, "generator_steps": 3, "nodes": 8, "noise_dim": 4}


def gone_on(kit, build):
    """The server of a run that was stopped after two steps of its work, and went on from what was saved."""
    server, federation = build()
    saved = []

    def stop(work):
        if work.done == 2:
            saved.append((server.state(), work.state()))
            raise Stop

    server.after_step = stop
    with pytest.raises(Stop):
        kit.rounds(server, federation)
    fresh, federation = build()
    ((state, work),) = saved
    fresh.load_state(state)
    fresh.unfinished = work
    kit.rounds(fresh, federation)
    return fresh
