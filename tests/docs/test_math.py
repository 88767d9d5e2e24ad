"""Formulas become MathML when the site is built."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

METHODS = (
    "fedridge",
    "fedavg",
    "fedprox",
    "scaffold",
    "fedsage",
    "fedsage_plus",
    "fedlog",
    "opfgl",
    "fedpg",
    "fairfgl",
)
"""Methods whose equations are formulas; the others' are lines of text so far."""


def drawn(formulas: ModuleType, source: str) -> ElementTree.Element:
    return ElementTree.fromstring(formulas.block(source, "math", "formula", {}, None))


def words(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def test_a_formula_is_mathml_with_its_latex_beside_it(formulas: ModuleType) -> None:
    made = drawn(formulas, r"\frac{1}{K} \sum_k \theta_k < 1")
    assert made.attrib["aria-label"] == r"\frac{1}{K} \sum_k \theta_k < 1"
    assert words(made) == "1K∑kθk<1"
    tags = {each.tag.rpartition("}")[2] for each in made.iter()}
    assert {"math", "mfrac", "munder", "msub"} <= tags


def test_rows_are_a_table_and_remarks_are_words(formulas: ModuleType) -> None:
    made = drawn(
        formulas, r"\begin{aligned} &\text{client} & w &= \mu & &\text{5 \% of } k \\ & & v &= 2 \end{aligned}"
    )
    rows = [[words(cell) for cell in row.iter("td")] for row in made.iter("tr")]
    assert rows == [["", "client", "w", "=μ", "", "5 % of k"], ["", "", "v", "=2"]]
    assert [words(each) for each in made.iter("span")] == ["client", "5 % of k"]


@pytest.mark.parametrize("source", [r"\arg x", "{", r"\begin{aligned} \begin{cases} a \end{cases} \end{aligned}"])
def test_what_cannot_be_drawn_stops_the_build(formulas: ModuleType, source: str) -> None:
    with pytest.raises(ValueError, match="drawn"):
        formulas.block(source, "math", "formula", {}, None)


@pytest.mark.parametrize("name", METHODS)
def test_equations_of_a_method_are_formulas(formulas: ModuleType, checkout: Path, name: str) -> None:
    """And the converter knows every command in them: none is left as it was typed."""
    text = (checkout / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    equations = text.split("\n## Equations\n")[1].split("\n## ")[0]
    found = re.findall(r"```math\n(.*?)```", equations, flags=re.DOTALL)
    assert found
    assert "```text" not in equations.split("With noise")[0]
    for source in found:
        assert "\\" not in words(drawn(formulas, source))
