"""Formulas become MathML when the site is built."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest


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


def test_every_method_has_its_equations_as_formulas(formulas: ModuleType, checkout: Path) -> None:
    for page in sorted((checkout / "docs" / "methods").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        found = re.findall(r"```math\n(.*?)```", text, flags=re.DOTALL)
        assert found or "## Equations" not in text, page.name
        assert "```text" not in text.partition("\n## Equations\n")[2].partition("\n## ")[0], page.name
        for source in found:
            assert words(drawn(formulas, source)), page.name
