"""Formulas of the documentation: LaTeX in the text, MathML in the page; no script and no font is needed to read them.

A block fenced as ``math`` is a formula, or with ``aligned`` several rows of them, whose columns are right- and
left-aligned in turn as in LaTeX. MkDocs loads this file as a hook.
"""

from __future__ import annotations

import html
import re
from itertools import pairwise
from typing import Any

BETTER = {
    'display="block"': 'displaystyle="true"',
    "<mo>&#x02016;</mo>": '<mo stretchy="false">&#x02016;</mo>',  # both bars of a norm with an exponent as high
    r"<mo>([A-Za-z]+)</mo>(?=<mo[^>]*>&#x00028;)": r"<mi>\1</mi>",  # no room before a bracket, some before a letter
    r"(?<!<msub>)(<mi>(?:log|exp|cos)</mi>)(?!<mo[^>]*>&#x00028;)": r'\1<mspace width="0.167em"/>',
}
"""What is drawn better than the converter has it."""
ALIGNED = re.compile(r"\A\\begin\{aligned\}(.*)\\end\{aligned\}\Z", re.DOTALL)


def on_config(config: Any) -> Any:
    """MkDocs calls this once: blocks of the language ``math`` are drawn here."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "formula", "format": block})
    return config


def block(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """A formula on lines of its own, as HTML. Arguments are those of a fence of ``pymdownx.superfences``."""
    source = source.strip()
    label = html.escape(" ".join(source.split()), quote=True)
    rows = ALIGNED.match(source)
    drawn = _table(rows[1]) if rows else mathml(source)
    return f'<div class="{css_class}" role="math" aria-label="{label}" tabindex="0">{drawn}</div>'


def _table(source: str) -> str:
    """Rows of ``aligned``: a table, since browsers' MathML knows no alignment of columns."""
    if r"\begin" in source:
        raise ValueError(f"within aligned no other environment is drawn: {source}")
    lines = []
    for row in re.split(r"\\\\", source.strip()):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)&", row)]
        # What follows an empty cell is a remark, whose words may go on in a second line.
        drawn = [_words(cell) if not before else mathml(cell) for before, cell in pairwise(["", *cells])]
        lines.append("".join(f"<td>{cell}</td>" for cell in drawn))
    return f'<table class="aligned">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'


def _words(source: str) -> str:
    """Text with formulas in it."""
    parts = re.split(r"\\text\{([^{}]*)\}", source)
    drawn = [html.escape(part.replace("\\%", "%")) if place % 2 else mathml(part) for place, part in enumerate(parts)]
    return f"<span>{''.join(drawn)}</span>" if len(parts) > 1 else "".join(drawn)


def mathml(source: str) -> str:
    """A formula as MathML, in display style; nothing for nothing.

    Raises:
        ValueError: It is not LaTeX that can be drawn.
    """
    from latex2mathml.converter import convert

    if not source.strip():
        return ""
    try:
        made = convert(source.strip(), display="block")
    except Exception as error:
        raise ValueError(f"this formula cannot be drawn ({type(error).__name__} {error}): {source}") from error
    if "\\" in made:  # a command that the converter does not know is left as it stands
        raise ValueError(f"this formula cannot be drawn, as it has a command that is not known: {source}")
    for pattern, better in BETTER.items():
        made = re.sub(pattern, better, made)
    return made
