"""The documentation's notebooks run from the first cell to the last, and show what their text says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("nbconvert")
CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((CHECKOUT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("docs_notebooks", CHECKOUT / "scripts" / "docs_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept_with_the_source(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("first-federation", ["by louvain", "FedAvg on citation-sbm", "Local only", "FedPer"]),
        ("watching-a-run", ["ended with round", "no better than", "validation.accuracy", "watched/tensorboard/seed-1"]),
    ],
)  # fmt: skip
def test_notebooks_run(hook, name, shown):
    done = hook.run(CHECKOUT / "docs" / "notebooks" / f"{name}.ipynb")
    text, pictures = hook.page(done, f"{name}.ipynb")
    assert text.startswith("# Notebook: ")
    assert [word for word in shown if word not in text] == []
    assert len(pictures) >= 1
    assert all(picture.startswith(b"<?xml") and b"Round" in picture for picture in pictures.values())
    assert "Output()" not in text
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert [output for output in outputs if output.get("name") == "stderr"] == []  # nothing red
