"""Our server beside Phoenix and MLflow: from the command to healthy, on the disk, and asked for what a page shows first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement

from agentloupe.server.app import PAGE
from bench.browser import browsing, chromium, longest_task, wheel
from bench.context import Context
from bench.figures import NOT_INSTALLED, Figure, Found, Peer
from bench.peers import Absent, servers
from bench.peers.servers import Late, Server
from bench.timing import Batch, by_turns

_STEPS = 1000
"""Of the run that is opened: as many as one answer of Phoenix or of ours holds."""
_RUNS = 100
_SHOWN: Final = "document.body.textContent.includes('look_up') && performance.now()"
"""Asked in every frame: the time since the address was asked for, once a step of the tool can be read."""
_STILL: Final = """new Promise(done => {
  let before = 0, same = 0
  const look = () => {
    const now = document.querySelectorAll('*').length
    same = now === before ? same + 1 : 0
    before = now
    same === 60 ? done() : requestAnimationFrame(look)
  }
  look()
})"""
"""Nothing was added for 60 frames. One of the pages asks its server for ever, so its network is never idle."""
_PATIENCE_MS: Final = 120_000


def _installed_mb() -> float:
    """What `agent-loupe[server]` and all that it needs take on the disk, in MB, by what each says that it has installed."""
    todo, seen, size = [("agent-loupe", "server")], set[str](), 0
    while todo:
        name, extra = todo.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform or an older Python
        if name not in seen:
            seen.add(name)
            files = [found.locate_file(file) for file in found.files or () if "__pycache__" not in file.parts]
            size += sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())
        for line in found.requires or ():
            needed = Requirement(line)
            wanted = needed.marker is None or needed.marker.evaluate({"extra": extra})
            if wanted and needed.name not in seen:
                todo.append((needed.name, next(iter(needed.extras), "")))
    package = Path(__file__).parents[2] / "src" / "agentloupe"
    own = sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return (size + own) / 1e6


class _Others:
    """Servers of others, and why one is not measured: what has failed once is not tried again."""

    def __init__(self, there: Sequence[servers.Peer]) -> None:
        self.there = there
        self._why: dict[str, str] = {}

    def measured(self, what: Callable[[servers.Peer], float]) -> list[Peer]:
        """A figure of each, or why there is none."""
        return [self._measured(one, what) for one in self.there]

    def _measured(self, one: servers.Peer, what: Callable[[servers.Peer], float]) -> Peer:
        if one.title not in self._why:
            try:
                return Peer(one.title, what(one))
            except Absent:
                self._why[one.title] = f"{NOT_INSTALLED}: make bench-peers"
            except (Late, OSError) as wrong:  # an answer that is refused or takes too long is an OSError
                self._why[one.title] = f"not measured: {wrong}"
        return Peer(one.title, None, self._why[one.title])


def _ready(server: Server) -> float:
    """Fills a server, and starts it a second time: what is made once is there. Milliseconds of that start."""
    server.start()
    server.fill()
    server.stop()
    return server.start() * 1e3


def measure(context: Context) -> Found:
    """Starts one after another; then all of them run, and are asked by turns."""
    steps, runs = context.size(_STEPS, 100) - 1, context.size(_RUNS, servers.PAGE)
    ours = servers.Ours(context.path("ours"), steps, runs, opened=2 * (context.few + 1) + context.few)
    others = _Others([kind(context.path(kind.name), steps, runs) for kind in (servers.Phoenix, servers.Mlflow)])
    with ExitStack() as stack:
        for one in (ours, *others.there):
            stack.callback(one.stop)

        def ready(server: Server) -> float:
            context.say(f"starting and filling {server.title}")
            return _ready(server)

        found = Found()
        for name, unit, measured, target, peers, note in (
            ("from the command to healthy", "ms", ready(ours), 2000.0, others.measured(ready), ""),
            (
                "installed, with everything that it needs",
                "MB",
                _installed_mb(),
                120.0,
                others.measured(lambda one: one.installed_mb()),
                "of the others the whole of an environment that holds nothing else",
            ),
        ):
            figure = Figure(
                row="viewers", name=name, unit=unit, measured=measured, target=target, peers=peers, note=note
            )
            found.figures.append(figure)
        asked: tuple[tuple[str, Callable[[Server], int], int, str], ...] = (
            (f"{steps} steps opened, headers", lambda one: one.headers(), steps, "MLflow gives the whole run only"),
            (f"{steps} steps opened, what went in and out too", lambda one: one.whole(), steps, ""),
            (f"{servers.PAGE} runs of a list of {runs}", lambda one: one.listed(), servers.PAGE, ""),
        )
        for name, ask, count, note in asked:
            context.say(f"asking for {name}")
            found.figures.append(_asked(context, ours, others, name, ask, count, note))
        if chromium() is None or not (PAGE / "index.html").is_file():
            context.say(f"a browser, or the built page, is {NOT_INSTALLED}: no page is opened")
        else:
            context.say("opening the pages")
            found.figures += _in_a_browser(context, ours, others, steps)
    return found


class _Seen(NamedTuple):
    """What a page took in a new browser."""

    opened_ms: float
    came_kb: float
    elements: int
    longest_ms: float


def _seen(server: Server) -> _Seen:
    """Opens the long run until a step's name stands there, and scrolls through its steps."""
    with browsing() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
        came: list[float] = []
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda done: came.append(done["encodedDataLength"]))
        page.goto(server.page())
        shown = page.wait_for_function(_SHOWN, timeout=_PATIENCE_MS)
        opened, kilobytes = float(shown.json_value()), sum(came) / 1e3
        page.evaluate(_STILL)
        page.mouse.move(*server.list_at)
        longest = longest_task(browser, page, wheel)
        return _Seen(opened, kilobytes, page.evaluate("document.querySelectorAll('*').length"), longest)


def _in_a_browser(context: Context, ours: Server, others: _Others, steps: int) -> list[Figure]:
    """Each page some times by turns, each time in a new browser."""
    taken: dict[str, list[_Seen]] = {ours.title: []}
    said: dict[str, Peer] = {}

    def once(one: Server) -> float:
        from playwright.sync_api import Error

        try:
            taken.setdefault(one.title, []).append(_seen(one))
        except Error as wrong:
            raise Late(str(wrong).partition("\n")[0]) from wrong
        return 0.0

    for _ in range(context.few):
        once(ours)
        said |= {peer.name: peer for peer in others.measured(once)}

    def figure(name: str, unit: str, of: Callable[[_Seen], float], note: str) -> Figure:
        values = sorted(map(of, taken[ours.title]))
        peers = [
            Peer(name, min(map(of, taken[name]))) if peer.value is not None else peer for name, peer in said.items()
        ]
        return Figure(
            row="viewers",
            name=f"{steps} steps in a browser: {name}",
            unit=unit,
            measured=values[0],
            median=values[len(values) // 2],
            peers=peers,
            note=note,
        )

    return [
        figure("until the name of a tool's step stands on the page", "ms", lambda s: s.opened_ms, "a new browser"),
        figure("what came over the wire until then", "kB", lambda s: s.came_kb, ""),
        figure("longest task while 48,000 pixels are scrolled", "ms", lambda s: s.longest_ms, "of the main thread"),
        figure("elements that the page holds then", "", lambda s: s.elements, ""),
    ]


def _asked(
    context: Context, ours: Server, others: _Others, name: str, ask: Callable[[Server], int], count: int, note: str
) -> Figure:
    """What an answer takes, by the clock; one before it is not counted."""

    def once(one: Server) -> int:
        came = ask(one)
        assert came == count, f"{one.title} gave {came} of {count}"
        return 1

    once(ours)
    tried = others.measured(once)
    there = [one for one, peer in zip(others.there, tried, strict=True) if peer.value is not None]
    batches: dict[str, Batch] = {one.title: partial(once, one) for one in (ours, *there)}
    taken = by_turns(batches, context.few, waits=batches)
    best = taken[ours.title]
    return Figure(
        row="viewers",
        name=name,
        unit="ms",
        measured=best.ms,
        median=best.median * 1e3,
        peers=[Peer(peer.name, taken[peer.name].ms) if peer.name in taken else peer for peer in tried],
        note=note,
    )
