"""Clients on this machine: in this process, or spread over worker processes."""
