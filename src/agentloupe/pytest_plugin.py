"""The pytest plugin: recordings of agents as tests. Loads nothing of Loupe before a test needs it.

    def test_refund(replay):                                    # the agent is driven over a recording
        replay("recordings/refund.loupe", support_agent)

    @pytest.mark.loupe                                          # the test starts the agent itself
    def test_greeting():
        assert support_agent("hello") == "Hello!"

    @pytest.mark.loupe_recordings("recordings/incidents")       # one test for each file of a folder
    def test_incidents(replay, recording):
        replay(recording, support_agent)

and, without any test function, each `.loupe` file below `loupe_recordings` is one test of the agent `loupe_agent`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from agentloupe.engine.report import Level, ReplayReport
    from agentloupe.verbs.replaying import Agent, ExpectedDifferences
    from agentloupe.verbs.taped import Taped
    from agentloupe.verbs.testing import Case, Mode, Told

__all__ = ["Replay", "replay"]

_NEWS: Final = "loupe_recorded"
_MODES: Final = ("none", "once", "new_episodes", "all", "rewrite")
_STRICT: Final = "LOUPE_STRICT"
_FORBIDDEN: Final = "<>?%*:|\"'/\\"
_SAME_OPTION: Final = ("pytest_recording", "cassetter")
_set_strict = pytest.StashKey[bool]()


# --- options ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and settings."""
    group = parser.getgroup("loupe", "recordings of agents (Agent Loupe)")
    # Others have an option of this name, and of the same meaning: then its value holds.
    short = () if any(map(find_spec, _SAME_OPTION)) else ("--record-mode",)
    group.addoption(
        "--loupe-record-mode",
        *short,
        choices=_MODES,
        default=None,
        help="VCR.py's record modes, for runs of agents. Default: none where CI is set, else loupe_record_mode or once.",
    )
    group.addoption("--loupe-recordings", action="append", metavar="DIR", help="Each .loupe file below is a test.")
    group.addoption(
        "--loupe-agent",
        action="append",
        metavar="[NAME=]MODULE:FUNCTION",
        help="The agent that recordings below --loupe-recordings are replayed with; NAME: those of that agent only.",
    )
    group.addoption(
        "--loupe-isolated",
        action="store_true",
        default=None,
        help="Replay agents that are named MODULE:FUNCTION in child processes without a network.",
    )
    group.addoption(
        "--loupe-strict-order",
        action="store_true",
        default=None,
        help="A replay whose order of concurrent calls is not proven fails.",
    )
    parser.addini("loupe_record_mode", "Record mode outside of CI: none, once, new_episodes or all.", default="")
    parser.addini("loupe_recordings", "Folders whose .loupe files are tests.", type="paths", default=[])
    parser.addini("loupe_agent", "[NAME=]MODULE:FUNCTION, one a line; see --loupe-agent.", type="linelist", default=[])
    parser.addini("loupe_isolated", "See --loupe-isolated.", type="bool", default=False)
    parser.addini("loupe_strict_order", "See --loupe-strict-order.", type="bool", default=False)
    parser.addini("loupe_strict", "A value that cannot be recorded raises in tests.", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Markers, strict sessions, and folders of recordings that lie outside of what is collected anyway."""
    config.addinivalue_line(
        "markers",
        "loupe(path=None, *, level='content', expect=None, strict_order=None, mode=None): the run of the agent that this test starts is "
        "replayed from a recording, by default recordings/MODULE/TEST.loupe beside the test's file",
    )
    config.addinivalue_line(
        "markers",
        "loupe_recordings(folder): one test for each .loupe file of a folder; its path is the argument `recording`",
    )
    if config.getini("loupe_strict") and _STRICT not in os.environ:
        os.environ[_STRICT] = "1"  # a variable, so that child processes are strict too
        config.stash[_set_strict] = True
    folders = _folders(config)
    for folder in [folder for folder in folders if not folder.is_dir()]:
        # What a setting names may come with the first recording; what is typed is meant to be run now.
        if config.getoption("loupe_recordings") or not _records(config):
            raise pytest.UsageError(
                f"loupe: no such folder of recordings: {folder}\n"
                "  loupe_recordings (in the settings, from their folder) or --loupe-recordings (from here) names another; "
                "`agentloupe export RUN -o FOLDER/NAME.loupe` puts a recording there"
            )
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        wanted = [config.invocation_params.dir / arg for arg in config.args]
        config.args += [str(f) for f in folders if f.is_dir() and not any(f.is_relative_to(place) for place in wanted)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Puts the environment back."""
    if config.stash.get(_set_strict, False):
        os.environ.pop(_STRICT, None)


def _folders(config: pytest.Config) -> list[Path]:
    """Folders whose files are tests, absolute."""
    typed: Sequence[str] = config.getoption("loupe_recordings") or ()
    named = [config.invocation_params.dir / folder for folder in typed]
    return [folder.resolve() for folder in named or cast("list[Path]", config.getini("loupe_recordings"))]


def _mode(config: pytest.Config, wished: str | None = None) -> Mode:
    from agentloupe.verbs.testing import mode_for

    asked = config.getoption("loupe_record_mode") or config.getoption("--record-mode", None)
    return mode_for(asked, wished or str(config.getini("loupe_record_mode")) or None, os.environ)


def _records(config: pytest.Config) -> bool:
    """Whether tests of this session may record."""
    from agentloupe.words.errors import LoupeError

    try:
        return _mode(config) != "none"
    except LoupeError as wrong:
        raise pytest.UsageError(f"loupe: {wrong}") from wrong


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Folders that are not there yet: nothing of them is tested."""
    return [f"loupe: no folder of recordings yet: {folder}" for folder in _folders(config) if not folder.is_dir()]


def _again(item: pytest.Item) -> str:
    """How this very test is run to record anew, up to the mode's name."""
    return f'pytest "{item.nodeid}" --loupe-record-mode'


# --- the fixture ------------------------------------------------------------------------------------------------------


class Replay:
    """Replays recordings in a test, and fails the test where they do not agree. What the fixture `replay` gives."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __call__(
        self,
        recording: str | Path,
        agent: Agent | str | None = None,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        level: Level = "content",
        expect: ExpectedDifferences | None = None,
        strict_order: bool | None = None,
        isolated: bool | None = None,
        mode: str | None = None,
    ) -> ReplayReport:
        """Replays one recording, or records it, as the record mode says.

        Args:
            recording: a `.loupe` file, relative to the test's folder; or a run of the project's store.
            agent: the function, sync or async, or `module:function`; not needed for recordings of the generic loop.
            args: what it is called with when it is recorded; default: as in the recording that is there.
            kwargs: the same, by name.
            level: how much must agree: `flow`, `state` or `content`.
            expect: differences that are meant, or the file that lists them.
            strict_order: an order of concurrent calls that is not proven fails the test; default: as the settings say.
            isolated: in a child process without a network; the agent is `module:function` then.
            mode: record mode of this call, where neither the command line nor CI says otherwise.

        Returns:
            The report of the replay that passed.
        """
        from agentloupe.verbs.replaying import names_file

        __tracebackhide__ = True
        config = self._item.config
        file = isinstance(recording, Path) or names_file(recording)
        given = None if args is None and kwargs is None else (args or (), kwargs or {})
        by_text = agent is None or isinstance(agent, str)
        told = _checked(
            self._item,
            lambda case: case(
                path=self._item.path.parent / recording if file else str(recording),
                agent=agent,
                arguments=given,
                level=level,
                expect=expect,
                strict_order=_on(config, "loupe_strict_order") if strict_order is None else strict_order,
                isolated=_on(config, "loupe_isolated") and by_text if isolated is None else isolated,
                mode=_mode(config, mode),
                environment=_child_environment(config),
                again=_again(self._item),
            ),
        )
        assert told.report is not None, "what passed was replayed"
        return told.report


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Replay:
    """Drives an agent over a recording: `replay("recordings/refund.loupe", support_agent)`."""
    return Replay(cast("pytest.Item", request.node))


def _on(config: pytest.Config, name: str) -> bool:
    """A switch: the option, else the setting."""
    asked = config.getoption(name)
    return bool(config.getini(name) if asked is None else asked)


def _child_environment(config: pytest.Config) -> dict[str, str]:
    """A child finds what the project's setting `pythonpath` lets tests find."""
    places = [str(place) for place in cast("Iterable[Path]", config.getini("pythonpath"))]
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*places, *([before] if before else [])])} if places else {}


def _checked(item: pytest.Item, make: Callable[[type[Case]], Case]) -> Told:
    """Checks a case; the test fails with the report, without a traceback of ours."""
    from agentloupe.verbs.testing import Case, check
    from agentloupe.words.errors import LoupeError

    __tracebackhide__ = True
    try:
        told = check(make(Case))
    except LoupeError as wrong:
        _fail(f"{wrong}")
    _note(item, told)
    if not told.passed:
        _fail(told.text)
    return told


def _note(item: pytest.Item, told: Told) -> None:
    """Facts for JUnit and for the end of the session; they travel with the test's report, also from other workers."""
    item.user_properties.extend(told.properties().items())
    if told.news:
        item.user_properties.append((_NEWS, told.news))


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)


# --- a test that starts its agent itself ------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Runs a marked test under its recording."""
    marker = item.get_closest_marker("loupe")
    if marker is None:
        return (yield)
    taped = _taped(item, marker)
    error: BaseException | None = None
    result: object = None
    with taped:
        try:
            result = yield
        except _NO_VERDICT:
            raise
        except BaseException as raised:  # noqa: BLE001  # judged below, together with the replay
            error = raised
    if taped.is_outdated():
        taped = taped.anew()
        error = _once_more(item, taped)
    _judge(item, taped, error)
    return result


_NO_VERDICT: Final = (KeyboardInterrupt, pytest.skip.Exception, pytest.xfail.Exception, pytest.exit.Exception)
"""What ends a test without saying anything of it."""


def _once_more(item: pytest.Item, taped: Taped) -> BaseException | None:
    """Runs a test again, with the fixtures that it has, to record it; gives what it raised."""
    with taped:
        try:
            item.runtest()
        except _NO_VERDICT:
            raise
        except BaseException as raised:  # noqa: BLE001  # judged by the caller
            return raised
    return None


def _taped(item: pytest.Item, marker: pytest.Mark) -> Taped:
    """The recording that a marker names, opened; the test fails here where it cannot be replayed."""
    from agentloupe.verbs.taped import Taped
    from agentloupe.verbs.testing import Case
    from agentloupe.words.errors import LoupeError

    def wishes(
        path: str | Path | None = None,
        *,
        level: Level = "content",
        expect: ExpectedDifferences | None = None,
        strict_order: bool | None = None,
        mode: str | None = None,
    ) -> Case:
        return Case(
            path=_place_of(item) if path is None else item.path.parent / path,
            level=level,
            expect=expect,
            strict_order=_on(item.config, "loupe_strict_order") if strict_order is None else strict_order,
            mode=_mode(item.config, mode),
            again=_again(item),
        )

    try:
        taped = Taped(wishes(*marker.args, **marker.kwargs))
        refused = taped.opened()
    except (TypeError, LoupeError) as wrong:
        _fail(f"@pytest.mark.loupe: {wrong}")
    if refused is not None:
        _note(item, refused)
        _fail(refused.text)
    return taped


def _judge(item: pytest.Item, taped: Taped, error: BaseException | None) -> None:
    """The replay's verdict goes before what the test itself says of what it got."""
    from agentloupe.words.errors import LoupeError, ReplayMismatch

    try:
        told = taped.told(error)
    except LoupeError as wrong:
        _fail(str(wrong))
    _note(item, told)
    if told.passed or (told.report is None and error is not None):
        if error is not None:
            raise error
        return
    own = error is not None and not isinstance(error, ReplayMismatch)
    _fail(f"{told.text}\nthe test itself then failed with {type(error).__name__}: {error}" if own else told.text)


def _place_of(item: pytest.Item) -> Path:
    """`recordings/MODULE/CLASS.TEST.loupe` beside the test's file, with `-` for what file names must not hold."""
    holder = getattr(item, "cls", None)
    name = f"{holder.__name__}.{item.name}" if holder is not None else item.name
    safe = "".join("-" if c in _FORBIDDEN or not c.isprintable() else c for c in name)
    return item.path.parent / "recordings" / item.path.stem / f"{safe}.loupe"


# --- folders ----------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each file of a marked folder."""
    marker = metafunc.definition.get_closest_marker("loupe_recordings")
    if marker is None:
        return
    if len(marker.args) != 1 or marker.kwargs or "recording" not in metafunc.fixturenames:
        raise pytest.Collector.CollectError("write @pytest.mark.loupe_recordings(folder), and an argument `recording`")
    folder = metafunc.definition.path.parent / marker.args[0]
    files = sorted(folder.rglob("*.loupe"))
    if not files:
        lacks = f"there is no recording in {folder}" if folder.is_dir() else f"there is no folder {folder}"
        if _records(metafunc.config):
            not_yet = pytest.mark.skip(reason=f"{lacks} yet, so that nothing was tested")
            metafunc.parametrize("recording", [pytest.param(None, marks=not_yet)], ids=["none"])
            return
        raise pytest.Collector.CollectError(
            f"{lacks}, so that nothing would be tested\n"
            "  the marker names it from the test's own folder; `agentloupe export RUN -o FOLDER/NAME.loupe` puts a recording there"
        )
    metafunc.parametrize("recording", files, ids=[f.relative_to(folder).with_suffix("").as_posix() for f in files])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Each file below `loupe_recordings` is one test."""
    if file_path.suffix != ".loupe":
        return None
    mine = any(file_path.resolve().is_relative_to(folder) for folder in _folders(parent.config))
    return _RecordingFile.from_parent(parent, path=file_path) if mine else None  # pyright: ignore[reportUnknownMemberType]


class _RecordingFile(pytest.File):
    """A recording."""

    def collect(self) -> Iterable[pytest.Item]:
        yield _RecordingItem.from_parent(self, name="replay")  # pyright: ignore[reportUnknownMemberType]


class _RecordingItem(pytest.Item):
    """The replay of one recording with the agent that the project names."""

    def runtest(self) -> None:
        agent, environment = self._agent(), _child_environment(self.config)
        _checked(
            self,
            lambda case: case(
                path=self.path,
                agent=agent,
                strict_order=_on(self.config, "loupe_strict_order"),
                isolated=_on(self.config, "loupe_isolated"),
                mode=_mode(self.config),
                environment=environment,
                again=_again(self),
            ),
        )

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, None, f"replay: {self.path.name}"

    def _agent(self) -> str | None:
        """The agent whose recording this is, by its name; else the one that is named for all."""
        named: list[str] = self.config.getoption("loupe_agent") or self.config.getini("loupe_agent")
        pairs = [tuple(part.strip() for part in text.rpartition("=")[::2]) for text in named]
        by_name = {name: code for name, code in pairs if name}
        whole = next((code for name, code in pairs if not name), None)
        return by_name.get(self._recorded_agent(), whole) if by_name else whole

    def _recorded_agent(self) -> str:
        from agentloupe.importers.loupe_file import open_file
        from agentloupe.words.errors import LoupeError

        try:
            return open_file(self.path).events[0].name or ""
        except (LoupeError, IndexError):
            return ""  # the replay will say what is wrong with it


# --- the end of the session -------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was recorded, and how it differs from what was there."""
    news = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, text in report.user_properties
        if name == _NEWS
    ]
    if news:
        terminalreporter.section("recordings of agents")
        for text in news:
            terminalreporter.write_line(text)
