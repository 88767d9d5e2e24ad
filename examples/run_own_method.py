"""Trains with the method of own_method.py, and with FedAvg on the same data, cut and seed."""

# --8<-- [start:run]
from own_method import METHOD

from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry

registry.register(METHOD)
for method in ("fedavg", "fedper"):
    config = load_config(overrides={"method": method, "method.rounds": 20, "partition.clients": 5})
    print(method, run(config).accuracy())
# --8<-- [end:run]
