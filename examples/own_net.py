"""A network of your own: two graph convolutions of PyTorch Geometric. Nothing of graphsilo is in it."""

from torch import nn
from torch_geometric.nn import GCNConv


class Net(nn.Module):
    """Two graph convolutions with dropout between them."""

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 64, dropout: float = 0.5):
        super().__init__()
        self.conv = GCNConv(in_channels, hidden)
        self.head = GCNConv(hidden, out_channels)
        self.dropout = nn.Dropout(dropout)

    def embed(self, x, edge_index, edge_weight=None):
        return self.dropout(self.conv(x, edge_index, edge_weight).relu())

    def forward(self, x, edge_index, edge_weight=None):
        return self.head(self.embed(x, edge_index, edge_weight), edge_index, edge_weight)
