"""Prints the JSON Schema of result.json, which is kept as docs/result.schema.json: one line per definition."""

from __future__ import annotations

import json

from graphsilo.experiments.storage.reading import schema


def main() -> None:
    """Print it."""
    whole = schema()
    parts = ",\n".join(f"  {json.dumps(name)}: {json.dumps(part)}" for name, part in whole.pop("$defs").items())
    head = json.dumps(whole, indent=1).removesuffix("\n}")
    print(f'{head},\n "$defs": {{\n{parts}\n }}\n}}')


if __name__ == "__main__":
    main()
