"""Trains with the method of own_method.py, and with FedAvg on the same data, cut and seed."""

# --8<-- [start:run]
from own_method import METHOD

import graphsilo

for method in ("fedavg", METHOD):
    print(graphsilo.run(clients=5, method=method, rounds=20))
# --8<-- [end:run]
