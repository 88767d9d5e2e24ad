"""The pictures of the documentation: real commands are run, and their pages and what they print are drawn.

    python scripts/pictures.py                   # all of them, in a few minutes; needs Chromium
    python scripts/pictures.py report terminal   # these

Pages are photographed with Chromium (WebP), terminals drawn as SVG; both go to ``docs/pictures``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

PLACE = Path(__file__).resolve().parent.parent / "docs" / "pictures"
BIN = Path(sys.executable).parent
WIDTH, SHARPNESS = 1160, 1.25
"""Of a page in a picture: CSS pixels, and pixels of the picture for each."""
COLUMNS = 104
"""Of a terminal in a picture."""
PATIENCE = 400
"""Seconds that a federation may take to get going."""


def main() -> None:
    """Draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PICTURES)}; else all")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := set(names) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}: there are {', '.join(PICTURES)}")
    PLACE.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    os.environ.update(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1")
    # A short path: the sockets of kits lie below it.
    with tempfile.TemporaryDirectory(prefix="gs-") as folder, sync_playwright() as playwright:
        os.chdir(folder)
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in names:
            PICTURES[name](browser)


# -- what is pictured ------------------------------------------------------------------------------------------------


def report(browser: Browser) -> None:
    """The page of ``graphsilo demo``."""
    photograph(browser, _demo() / "report.html", "report", height=1400)


def terminal(browser: Browser) -> None:
    """What ``graphsilo demo`` prints at its end."""
    shutil.rmtree("demo", ignore_errors=True)
    draw("terminal", "graphsilo demo --out demo")


def explain(browser: Browser) -> None:
    """What ``graphsilo explain`` prints."""
    draw("explain", "graphsilo explain fedridge", rows=34)


def comparison(browser: Browser) -> None:
    """The page of ``graphsilo compare``: three methods on a generated citation graph, seven seeds."""
    for method in ("fedavg", "fedridge", "local"):
        call(f"graphsilo run --clients 5 --rounds 30 --seeds 0-6 --method {method} --out compared/{method} -q")
    call("graphsilo compare compared/fedavg compared/fedridge compared/local --report comparison.html")
    photograph(browser, Path("comparison.html"), "comparison", height=1000)


def attack(browser: Browser) -> None:
    """The page of ``graphsilo attack`` on a run of FedRidge, sums in plain."""
    call("graphsilo run --clients 5 --method fedridge --out attacked -q")
    call("graphsilo attack attacked --shadows 0 --quiet")
    photograph(browser, Path("attacked/attack.html"), "attack", height=1000)


def silo(browser: Browser) -> None:
    """The page of ``graphsilo silo explain`` for a hospital."""
    hospitals = _hospitals()
    call(f"graphsilo silo explain {hospitals}/south/silo.yaml fedridge --out silo.html")
    photograph(browser, Path("silo.html"), "silo", height=1000)


def status(browser: Browser) -> None:
    """The status page of three hospitals in the middle of a job, and the report of the job before."""
    hospitals = _hospitals()
    with contextlib.chdir(hospitals), contextlib.ExitStack() as stack:
        call("graphsilo federation init federation.yaml --out kits")
        for name in ("north", "south", "west"):
            stack.enter_context(running(f"graphsilo join kits/{name} --silo {name}/silo.yaml -q"))
        stack.enter_context(running("graphsilo serve kits/coordinator --page 8899 -q"))
        call("graphsilo federation submit fedavg.yaml --out result")
        call("graphsilo federation submit fedavg.yaml --out longer --set method.rounds=200")
        wait(lambda: _round_of("0002-fedavg") > 120)
        photograph(browser, "http://127.0.0.1:8899/", "status", height=1180)
        photograph(browser, Path("result/report.html"), "federation", height=1400)


PICTURES: dict[str, Callable[[Browser], None]] = {
    each.__name__: each for each in (report, terminal, explain, comparison, attack, silo, status)
}


def _demo() -> Path:
    folder = Path("demo")
    if not folder.exists():
        call("graphsilo demo --out demo")
    return folder


def _hospitals() -> Path:
    folder = Path("hospitals")
    if not folder.exists():
        call("graphsilo examples hospitals")
        call("python hospitals/make_tables.py")
    return folder


def _round_of(job: str) -> int:
    known = json.loads(call("graphsilo federation status --json"))["job"] or {}
    return known.get("round") or 0 if known.get("id") == job else 0


# -- how -------------------------------------------------------------------------------------------------------------


def call(command: str) -> str:
    """Run a command to its end; what it printed."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def running(command: str) -> Iterator[None]:
    """A command that runs as long as the block does."""
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def wait(until: Callable[[], bool]) -> None:
    """Until something is so."""
    end = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > end:
            raise SystemExit(f"the federation did not get going within {PATIENCE} s")
        time.sleep(0.5)


def photograph(browser: Browser, page: Path | str, name: str, *, height: int) -> None:
    """The upper part of a page."""
    sheet = browser.new_page(viewport={"width": WIDTH, "height": height}, device_scale_factor=SHARPNESS)
    sheet.goto(page if isinstance(page, str) else page.resolve().as_uri(), wait_until="load")
    sheet.wait_for_timeout(1500)  # figures are drawn by scripts
    picture = Image.open(io.BytesIO(sheet.screenshot()))
    sheet.close()
    picture.save(PLACE / f"{name}.webp", quality=80, method=6)
    _say(f"{name}.webp")


def draw(name: str, command: str, *, rows: int | None = None) -> None:
    """What a command prints in a terminal, as SVG that names no font of elsewhere."""
    lines = printed(command).splitlines()
    if rows is not None and len(lines) > rows:
        lines = [*lines[:rows], "…"]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text("$ ", style="dim") + Text(command, style="bold"), "\n", sep="")
    console.print(Text.from_ansi("\n".join(lines)))
    form = re.sub(r"@font-face \{\{.*?\}\}\s*|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    made = console.export_svg(title="", theme=DEFAULT_TERMINAL_THEME, code_format=form, unique_id=name)
    made = re.sub(r"<g[^>]*>\s*(<circle[^>]*/>\s*)+</g>", "", made)  # buttons of a window
    (PLACE / f"{name}.svg").write_text(made.replace("Fira Code", "ui-monospace, DejaVu Sans Mono"), encoding="utf-8")
    _say(f"{name}.svg")


def printed(command: str) -> str:
    """What a command writes to a terminal, without its progress."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, COLUMNS))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(shlex.split(command), stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    found = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            found += part
    os.close(ours)
    if process.wait():
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return found.decode().replace("\r\n", "\n").strip("\n")


def _say(name: str) -> None:
    print(f"{name}: {(PLACE / name).stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
