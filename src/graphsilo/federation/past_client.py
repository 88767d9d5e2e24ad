"""A client whose steps look at nodes that no edge leads from, such as all at once."""

from __future__ import annotations

from dataclasses import replace

from graphsilo.data.silos.past import train_on_past
from graphsilo.federation.client import ClientBase, ClientContext, ConfigT


class PastClient(ClientBase[ConfigT]):
    """Trains on nodes up to the last training node, where nodes have times; stands first among a class's bases."""

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(replace(context, silo=train_on_past(context.silo)))
