"""Loads a graph, cuts it, and trains a federation on it."""

# --8<-- [start:run]
import graphsilo

graph = graphsilo.load("citation-sbm")
cut = graphsilo.partition(graph, "louvain", clients=5)
print([len(nodes) for nodes in cut.nodes])

result = graphsilo.run(data="citation-sbm", clients=5, method="fedprox", rounds=20, settings={"method.mu": 0.1})
print(result.accuracy())
# --8<-- [end:run]
