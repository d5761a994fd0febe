"""`python -m agentloupe.providers.local_model [--port N]`: serves the bundled model on 127.0.0.1.

Prints what it is doing, one line each, then `ready URL`. Exit code 3 with a reason on stderr when it cannot start.
With `--with-parent` it ends when its standard input is closed, which also happens when its parent is killed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from agentloupe.providers.local_model.app import ChatApp
from agentloupe.providers.local_model.engine import LlamaEngine, weights
from agentloupe.providers.loopback import LoopbackServer
from agentloupe.words.errors import LoupeError


def main(argv: list[str] | None = None) -> int:
    """Serves until it is interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m agentloupe.providers.local_model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        path = weights(_say)
        _say("loading the model")
        server = LoopbackServer(ChatApp(LlamaEngine(path)), port=options.port)
    except (LoupeError, OSError, OverflowError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    except KeyboardInterrupt:
        return 0
    if options.with_parent:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    _say(f"ready {server.url}/v1")
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _end_with_input(server: LoopbackServer) -> None:
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
