"""What somebody brings along: a file with modules, one with a rule, one with a method."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

NET = '''
"""Two graph convolutions."""
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv


class Net(nn.Module):
    """Two graph convolutions."""

    def __init__(self, in_channels, out_channels, hidden: int = 8, dropout: float = 0.5, norm: bool = False):
        super().__init__()
        self.conv = GCNConv(in_channels, hidden)
        self.norm = nn.BatchNorm1d(hidden) if norm else nn.Identity()
        self.head = GCNConv(hidden, out_channels)
        self.dropout = dropout

    def embed(self, x, edge_index):
        return F.dropout(self.norm(self.conv(x, edge_index)).relu(), self.dropout, self.training)

    def forward(self, x, edge_index):
        return self.head(self.embed(x, edge_index), edge_index)
'''

RULE = '''
"""Bands of node numbers."""
import numpy as np


def bands(graph, clients, seed, offset: int = 0):
    """Nodes in the order of their numbers."""
    return (np.arange(graph.num_nodes) + offset) * clients // (graph.num_nodes + offset)
'''

SMALL = {"name": "citation-sbm", "nodes": 90, "classes": 3, "features": 12}
QUICK = {"data": SMALL, "partition": "random", "clients": 3, "rounds": 2, "report": False}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def numbers(result, *, sent: bool = True) -> list:
    """Everything that a run scored, bit for bit, and the bytes that were sent for it."""
    return [
        (seed["test"], [(row["validation"], row["test"], row["upload_bytes"] * sent) for row in seed["rounds"]])
        for seed in result.tree["seeds"]
    ]
