"""`python -m agentloupe` is the command `agentloupe`."""

from __future__ import annotations

import sys

from agentloupe.cli import main

if __name__ == "__main__":
    sys.exit(main())
