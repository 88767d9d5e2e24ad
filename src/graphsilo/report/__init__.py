"""One self-contained HTML page per run or comparison, and comparison tables as text."""

from graphsilo.report.grid import Grid, comparison
from graphsilo.report.html import write, write_comparison
from graphsilo.report.tables import Comparison
from graphsilo.report.writers import to_csv, to_latex, to_markdown

__all__ = ["Comparison", "Grid", "comparison", "to_csv", "to_latex", "to_markdown", "write", "write_comparison"]
