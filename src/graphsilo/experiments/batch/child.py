"""A process of ``executors.Processes``: orders come on standard input, replies go to standard output, a line each."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading

from graphsilo.experiments.batch.orders import carry_out


def main() -> None:
    """Carry out orders until there will be no more."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no reply
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        reply = carry_out(json.loads(orders.get()))
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _listen(orders: queue.Queue[str]) -> None:
    """Whoever leads the batch has gone when the input ends, and the run that is going on ends with it."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)
