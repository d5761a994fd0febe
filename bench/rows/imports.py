"""What `import agentloupe` takes in a fresh interpreter, and what it may not load."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import Sample

_USE = "from agentloupe import agent, compare, fork, open_store, record, recording, replay, tool, wrap"
_HEAVY = ("fastapi", "starlette", "uvicorn", "pydantic", "openai", "httpx", "httpx2", "typer", "rich", "genai_prices")
_LINE = re.compile(r"import time:\s+\d+ \|\s+(\d+) \| agentloupe$", re.MULTILINE)


def _seconds(code: str) -> float:
    timer = f"import time; a = time.process_time(); {code}; print(time.process_time() - a)"
    return float(_run(timer).stdout)


def _run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)


def _loaded(code: str) -> list[str]:
    found = _run(f"{code}; import sys; print(*[m for m in {_HEAVY!r} if m in sys.modules])").stdout
    return found.split()


def measure(context: Context) -> Found:
    """The least of several starts. `importtime` itself costs a little for each module."""
    found = Found()
    rounds = context.turns(7)
    for name, code, target in (
        ("the package", "import agentloupe", 50.0),
        ("every verb, also those that load when they are used", _USE, None),
    ):
        times = sorted(_seconds(code) for _ in range(rounds))
        one = Sample(times[0], times[len(times) // 2], times[-1], times[0])
        heavy = _loaded(code)
        figure = Figure(
            row="imports",
            name=name,
            unit="ms",
            measured=one.ms,
            median=one.median * 1e3,
            target=target,
            note=f"loads {', '.join(heavy)}" if heavy else "loads no server, client or terminal library",
        )
        found.figures.append(figure)
    told = [_LINE.search(_run("import agentloupe", "-X", "importtime").stderr) for _ in range(rounds)]
    least = min(int(line[1]) for line in told if line is not None) / 1e3
    found.figures.append(
        Figure(row="imports", name="the package, as -X importtime tells it", unit="ms", measured=least, target=50.0)
    )
    return found
