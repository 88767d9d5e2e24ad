"""How messages get to clients: in this process, to worker processes, to other machines."""
