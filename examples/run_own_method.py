"""Trains with the method of own_method.py, and with FedAvg on the same data, cut and seed."""

# --8<-- [start:run]
from own_method import METHOD

import graphsilo
from graphsilo.federation import registry

registry.register(METHOD)
for method in ("fedavg", "fedper"):
    print(method, graphsilo.run(clients=5, method=method, rounds=20).accuracy())
# --8<-- [end:run]
