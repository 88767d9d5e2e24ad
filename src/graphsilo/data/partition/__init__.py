"""Cutting data into clients: rules, the stored partition, and what a cut does to a graph."""

from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.audit import Audit, ClientAudit, audit
from graphsilo.data.partition.registry import adopt, entry, list_added, partition, rules
from graphsilo.data.partition.rule import Rule

__all__ = [
    "Audit",
    "ClientAudit",
    "Partition",
    "Rule",
    "adopt",
    "audit",
    "entry",
    "list_added",
    "partition",
    "rules",
]
