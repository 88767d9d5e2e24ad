"""Evaluation from counts that add up: confusion counts, metrics computed from them, node groups, seeds."""
