"""What silos say of shared nodes: what is declared, and lies."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.methods.fedgl.messages import Embeddings, Nodes, Predictions, Shared
from kit.messages import check_sent

IDS = torch.tensor([4, 5])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Predictions(ids=IDS, rows=torch.tensor([[3.0, 3.1, 6.0], [0.0, 0.0, 6.0]])), "add up to 1 at most"),
        (Predictions(ids=IDS, rows=torch.tensor([[-1.0, 3.0, 6.0], [0.0, 0.0, 6.0]])), "at least 0"),
        (Predictions(ids=IDS + 1, rows=torch.zeros(2, 3)), "not those that were asked for"),
        (Predictions(ids=IDS, rows=torch.tensor([[0.0, 0.0, 7.0], [0.0, 0.0, 6.0]])), "6 to 7 came"),
        (Embeddings(ids=IDS, rows=torch.tensor([[1.0, -1.0], [1.0, 6.0]])), "-1 to 6 came"),
        (Nodes(ids=torch.tensor([1, 1])), "ascending order"),
    ],
)
def test_lies_about_shared_nodes_are_refused(answer, text):
    def check():
        answer.check()
        answer.check_answer(Shared(ids=IDS))
        answer.check_size(Shared(ids=IDS), 6.0, 0.0)

    with pytest.raises(MessageError, match=text):
        check()


def test_what_leaves_a_silo():
    check_sent(
        "fedgl",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        name_nodes ids: topology int64 [nodes] shared=True
        tell_predictions ids: topology int64 [shared] shared=True
        tell_predictions rows: logits float32 [shared, columns] shared=True
        tell_embeddings ids: topology int64 [shared] shared=True
        tell_embeddings rows: embedding float32 [shared, columns] shared=True
        """,
    )
