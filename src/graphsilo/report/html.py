"""The report pages: one HTML file each, which loads nothing from anywhere.

Figures are drawn here, as SVG; the page's one script adds what is handy (sorting, a value under the pointer), and all
that the page says can be read without it. A content security policy forbids everything else: only the script whose hash
it names may run, and no address can be asked, so that a page opened years later, or on a machine without a network,
shows the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from graphsilo.experiments.storage import disk
from graphsilo.report import comparison_page, run_page
from graphsilo.report.formats import MISSING, in_sentence, number
from graphsilo.report.grid import compare_runs
from graphsilo.report.numbers import numbers
from graphsilo.report.plot import METRIC, Figure, palette
from graphsilo.report.record import Context, Run, load
from graphsilo.report.sections import Block, Page
from graphsilo.report.svg import draw

if TYPE_CHECKING:
    import jinja2


def write(run_dir: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a run.

    Args:
        run_dir: The run's folder, with at least result.json.
        out: Where to; by default ``report.html`` in the run's folder.

    Returns:
        The file. It is replaced in one step: a reader sees the old page or the new one.

    Raises:
        ConfigError: The folder holds no finished run.
        RunError: Its result cannot be read, or the file cannot be written.
    """
    run = load(run_dir)
    target = Path(out) if out is not None else run.path / "report.html"
    disk.write_text(target, render(run))
    return target


def write_comparison(run_dirs: Sequence[Path | str], out: Path | str, **asked: Any) -> Path:
    """Write the comparison page of several runs.

    Args:
        run_dirs: Their folders.
        out: The file to write.
        asked: ``metrics``, ``baseline``, ``mode``, ``target``, ``published`` as ``compare_runs`` takes them.

    Raises:
        RunError: A result cannot be read, or the file cannot be written.
        ConfigError: A folder holds no finished run, ``baseline`` is none of the runs, or something else that was
            asked for is not known.
    """
    target = Path(out)
    runs = [load(run_dir, with_ledger=False) for run_dir in run_dirs]
    disk.write_text(target, render_comparison(runs, **asked))
    return target


def render(run: Run) -> str:
    """The report page of a run, as HTML."""
    return page(run_page.describe(run))


def render_comparison(runs: Sequence[Run], **asked: Any) -> str:
    """The comparison page of runs in memory, as HTML; see ``write_comparison``."""
    return page(comparison_page.describe(runs, compare_runs(runs, **asked)))


def page(of: Page) -> str:
    """A page as HTML; blocks and sections with nothing to draw are left out."""
    script = script_text(read_asset("report.js"))
    sections = [replace(section, blocks=_drop_empty(section.blocks)) for section in of.sections]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=of.title,
            brand=of.brand,
            lede=of.lede,
            notices=_drop_empty(of.notices),
            sections=[section for section in sections if section.blocks],
            footer=of.footer,
            glossary=of.glossary,
            style=Markup(palette() + read_asset("report.css")),
            scripts=[Markup(script)],
            policy=_policy([script]),
            missing=MISSING,
        )
    )


def _drop_empty(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if block[1]]


def environment() -> jinja2.Environment:
    """The templates of the package."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"choices": _choices}
    return made


def _choices(figure: Figure) -> list[Context]:
    """Every plot of a figure as the template shows it: what it is, its pictures, and its numbers."""
    return [
        {
            "name": name,
            "label": figure.label.replace(METRIC, in_sentence(name)) if METRIC in figure.label else figure.label,
            "pictures": [(kind, Markup(picture)) for kind, picture in pictures],
            "numbers": numbers(plot),
        }
        for (name, pictures), plot in zip(draw(figure), figure.plots.values(), strict=True)
    ]


def read_asset(name: str) -> str:
    """The text of a template, style or script."""
    from importlib import resources

    return resources.files("graphsilo.report").joinpath("templates", name).read_text(encoding="utf-8")


def script_text(text: str) -> str:
    """A script as it may stand inside the page: line ends as the browser hashes them, no way out of the element."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def hash_source(text: str) -> str:
    """What a content security policy calls a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _policy(scripts: Iterable[str]) -> str:
    return (
        f"default-src 'none'; script-src {' '.join(map(hash_source, scripts))}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def json_for_html(value: Any) -> str:
    """JSON that cannot end the script element it stands in. NaN and infinities become null."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def plain(value: Any, longest: int | None = None) -> Any:
    """JSON values: no NaN, which JSON has no word for, and no text that is longer than a reader wants."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, longest) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, longest) for item in value]
    if isinstance(value, str) and longest is not None and len(value) > longest:
        return f"{value[:longest]} …"
    return number(value) if isinstance(value, float) else value
