"""What each client holds: a part of the graph, features in units it can learn from, scenarios, own tables."""
