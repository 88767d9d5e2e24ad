"""``python -m graphsilo`` is the command ``graphsilo``."""

import sys

from graphsilo.cli import main

if __name__ == "__main__":
    sys.exit(main())
