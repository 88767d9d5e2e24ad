"""Runs: from a configuration to silos, seeds, rounds and results."""
