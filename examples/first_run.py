"""Loads a graph, cuts it, and trains a federation on it."""

# --8<-- [start:run]
import graphsilo

graph = graphsilo.load("citation-sbm")
cut = graphsilo.partition(graph, "louvain", clients=5)
print([len(nodes) for nodes in cut.nodes])

result = graphsilo.run(data=graph, partition=cut, method={"name": "fedprox", "mu": 0.1}, rounds=20)
print(f"test accuracy {result.accuracy():.3f}")
# --8<-- [end:run]
