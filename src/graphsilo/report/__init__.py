"""One self-contained HTML page per run or comparison, and comparison tables as text."""

from graphsilo.report.html import write, write_comparison
from graphsilo.report.tables import Comparison, comparison, to_csv, to_latex, to_markdown

__all__ = ["Comparison", "comparison", "to_csv", "to_latex", "to_markdown", "write", "write_comparison"]
