"""One file per method: citation, settings, messages, client, server. Found by their ``METHOD`` line."""
