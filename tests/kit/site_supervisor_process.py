"""A site's supervisor in a process of its own, to be killed: ``python site_supervisor_process.py NAME NUMBER FILE
FOLDER``."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from graphsilo.runtime.site.supervisor import SiteSupervisor

if __name__ == "__main__":
    name, number, file, folder = sys.argv[1:]
    site = SiteSupervisor(name, [(int(number), Path(file))], Path(folder))
    site.start()
    print("ready", flush=True)
    threading.Event().wait()
