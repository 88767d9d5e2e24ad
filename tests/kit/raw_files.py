"""Raw files of data sets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def run_python(code: str, **variables: str) -> str:
    environment = os.environ | variables
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def copy_raw(data_root: Path, target: Path, folder: str) -> Path:
    (target / folder).mkdir(parents=True)
    for path in (data_root / folder).iterdir():
        shutil.copyfile(path, target / folder / path.name)
    return target
