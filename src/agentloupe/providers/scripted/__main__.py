"""`python -m agentloupe.providers.scripted [--port N]`: the sample agents' scripted model, until it is interrupted."""

from __future__ import annotations

import argparse
import sys

from agentloupe.providers.loopback import LoopbackServer
from agentloupe.providers.scripted import ScriptedModel, sample_rule


def main() -> int:
    """Serves on 127.0.0.1 and prints `ready URL` when it listens."""
    parser = argparse.ArgumentParser(prog="python -m agentloupe.providers.scripted", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    server = LoopbackServer(ScriptedModel(sample_rule).app, port=parser.parse_args().port)
    sys.stdout.write(f"ready {server.url}/v1\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
