"""Notebooks of the documentation, as pages: run when the site is built, so that they show what this version gives.

They stand in ``docs/notebooks`` without outputs. What a run of one gave is kept in ``build/notebooks`` for as long as
neither the notebook nor the package changes. MkDocs loads this file as a hook.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
"""What moves while a cell runs, and is closed afterwards."""


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """MkDocs calls this with all files: each notebook gets a page beside it."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = Path(str(file.abs_src_path))
        text, pictures = page(ran(path), path.name)
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"{Path(file.src_uri).parent}/{name}", content=picture))
    return files


def ran(path: Path) -> nbformat.NotebookNode:
    """A notebook with its outputs, from what is kept if nothing has changed since."""
    digest = hashlib.sha256(path.read_bytes())
    for module in sorted((ROOT / "src").rglob("*.py")):
        digest.update(module.read_bytes())
    kept = KEPT / f"{path.stem}-{digest.hexdigest()[:16]}.ipynb"
    if kept.exists():
        return nbformat.read(kept, as_version=4)
    done = run(path)
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(done, kept)
    return done


def run(path: Path) -> nbformat.NotebookNode:
    """A notebook with its outputs; what it writes goes into a folder that does not last."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        quiet = ["--log-level=ERROR"]
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources=resources, extra_arguments=quiet
        ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    return notebook


def page(notebook: nbformat.NotebookNode, name: str) -> tuple[str, Mapping[str, bytes]]:
    """Its Markdown, and its pictures by name."""
    stem = name.removesuffix(".ipynb")
    resources = {"unique_key": stem, "output_files_dir": f"{stem}_files"}
    text, found = MarkdownExporter().from_notebook_node(notebook, resources=resources)
    text = text.replace("![svg](", "![Figure](").replace(".svg)", '.svg){: style="width:26em" }')
    title, _, rest = text.lstrip().partition("\n")
    return f'{title}\n\n[This page as a notebook]({name}){{: download="{name}" }}\n{rest}', found.get("outputs", {})
