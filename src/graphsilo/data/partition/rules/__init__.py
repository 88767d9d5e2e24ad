"""The rules that cut one graph into clients: each file here has its ``RULES``, and is found by being here."""
