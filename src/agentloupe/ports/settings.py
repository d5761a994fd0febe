"""Settings: `loupe.toml` or `[tool.agentloupe]` of `pyproject.toml`, `LOUPE_*` variables over it, `.env` for the model.

    db = "sqlite:///runs.db"          # LOUPE_DB; default .loupe/loupe.db beside the project
    strict = false                    # LOUPE_STRICT; an unrecordable value raises
    write_without_store = "refuse"    # LOUPE_WRITE_WITHOUT_STORE; or "allow"
    schedule = "exact"                # LOUPE_SCHEDULE; or "no_baton" (threads run as they like), "off" (nothing is gated)
    stuck_after = 5                   # LOUPE_STUCK_AFTER; seconds until a replay that does not move is stopped
    lookup_timeout = 30               # LOUPE_LOOKUP_TIMEOUT; seconds that `resume` waits for a tool's `lookup`
    model_urls = ["llm.example:8080"] # LOUPE_MODEL_URLS (commas); further addresses of models, for programs that wrap nothing
    control_tools = ["transfer_to_*"] # LOUPE_CONTROL_TOOLS (commas); tools that a framework answers itself, so that nobody sees them run
    anchors = "/safe/anchors.jsonl"   # LOUPE_ANCHORS; signed checkpoints that `verify` and the page hold runs against
    anchor_key = "/safe/anchor.pub"   # LOUPE_ANCHOR_KEY; the public key that they are signed with
    outbox = true                     # LOUPE_OUTBOX; or types of events (commas): what is told to the outside, see `ports.outbox`
    pass_trace_on = false             # LOUPE_PASS_TRACE_ON; requests to models carry `traceparent` and `tracestate` of their step
    profile = "full"                  # LOUPE_PROFILE; or "redacted", "digest_only": what is kept of values, see `words.keeping`
    sample = 1.0                      # LOUPE_SAMPLE; share of runs that are kept by their profile, of the others digests are kept
    digest_key_file = "/safe/digest.key"  # LOUPE_DIGEST_KEY_FILE; digests of values that are not kept are HMACs by this key
    env = ["TZ", "LANG"]              # LOUPE_ENV (commas); environment names whose values a snapshot may hold
    [secrets]
    fields = ["customer_pin"]         # further names of fields whose values never enter
    keep = ["csrf_token"]             # names that the built-in rules should leave alone
    patterns = { ticket = "TICK-[0-9]{6}" }
    [redaction]                       # what the profile "redacted" removes besides, in the form of [secrets]
    fields = ["nickname"]
    [profiles]                        # agents with a profile of their own, by name
    support = "digest_only"
    [samples]                         # agents with a share of their own, by name
    triage = 0.1
    [recording]
    when_full = "wait"                # LOUPE_RECORDING_WHEN_FULL; or "drop_bodies": where the queue of cheap reads is full
    [live]                            # tools that a fork may run live, each with its reason
    calculate = "pure arithmetic"
    [server]                          # limits of `agentloupe serve`, see `ports.serving`
    max_body = 2000000
    [endpoints.claude]                # models that a fork may ask, by name
    base_url = "https://api.anthropic.com/v1"
    dialect = "anthropic"             # or "responses", "gemini", "converse", "chat"; left out: whatever it is asked in
    key_env = "ANTHROPIC_API_KEY"     # the variable (also in .env) that holds the key

Nothing here prints or shows a key.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from agentloupe.ports.outbox import DEFAULT_TYPES
from agentloupe.ports.schedule.core import Mode
from agentloupe.ports.serving import SERVER_READERS, ServerSettings
from agentloupe.words.dialects import Form
from agentloupe.words.errors import ConfigError
from agentloupe.words.event import EVENT_TYPES
from agentloupe.words.jsontext import Json, JsonFault, loads
from agentloupe.words.keeping import Profile, read_profile, read_share

__all__ = [
    "RECORDING_READERS",
    "EndpointSettings",
    "ModelSettings",
    "Settings",
    "find_root",
    "load",
    "model_settings",
    "places_of_model",
    "read_dotenv",
    "variable",
]

WriteWithoutStore = Literal["refuse", "allow"]
WhenFull = Literal["wait", "drop_bodies"]

_MARKERS = ("loupe.toml", "pyproject.toml", ".git")
_NO_NAMES: Mapping[str, str] = {}
_NO_BODY: Mapping[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """A model's address, as it is configured under a name.

    Attributes:
        base_url: the address, with its `/v1`.
        dialect: the form that it speaks; `None`: whatever it is asked in.
        key_env: the variable that holds the key; `None`: no key is sent.
        model: the model to ask there, where the request names none.
    """

    base_url: str
    dialect: Form | None = None
    key_env: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set for a project.

    Attributes:
        root: the project's folder.
        db: URL or path of the store.
        strict: an unrecordable value raises.
        write_without_store: whether a write effect may run when its intent cannot be stored.
        schedule: how much of a program's order is recorded: `exact`, `no_baton` or `off`.
        stuck_after: seconds without a move after which a quiet replay is stopped.
        lookup_timeout: seconds after which a tool's `lookup` counts as not knowing.
        secret_fields, secret_keep, secret_patterns: the workspace's own rules of secret removal.
        profile: what is kept of values; `profiles`: of agents that have one of their own, by name.
        sample: the share of runs that are kept by their profile; `samples`: of agents that have one of their own, by name.
        when_full: whether the program waits where the queue of cheap reads is full, or their values are not kept.
        redact_fields, redact_keep, redact_patterns: what the profile `redacted` removes besides the built-in shapes.
        digest_key_file: holds the key by which values that are not kept are digested; `None`: not by a key.
        live: tools that a fork may run live, with the reason.
        endpoints: models that a fork may ask, by name.
        env: environment names whose values a snapshot may hold.
        server: of `agentloupe serve`.
        outbox: types of events that are told to the outside; `None`: as the store is set.
        model_urls: further addresses of models (host, `host:port` or beginning of a URL), for programs that wrap nothing.
        control_tools: names or patterns of tools that control logic answers itself: hand-offs, forms to answer in.
        pass_trace_on: requests to models carry the headers `traceparent` and `tracestate` of their step.
        anchors, anchor_key: file of signed checkpoints, and file of the public key; `None`: nothing is held against any.
    """

    root: Path
    db: str
    strict: bool = False
    write_without_store: WriteWithoutStore = "refuse"
    schedule: Mode = "exact"
    stuck_after: float = 5.0
    lookup_timeout: float = 30.0
    secret_fields: tuple[str, ...] = ()
    secret_keep: tuple[str, ...] = ()
    secret_patterns: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    live: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict[str, EndpointSettings])
    env: tuple[str, ...] = ("TZ", "LANG", "LC_ALL", "PYTHONHASHSEED")
    server: ServerSettings = field(default_factory=ServerSettings)
    model_urls: tuple[str, ...] = ()
    control_tools: tuple[str, ...] = ()
    outbox: tuple[str, ...] | None = None
    pass_trace_on: bool = False
    anchors: Path | None = None
    anchor_key: Path | None = None
    profile: Profile = "full"
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    sample: float = 1.0
    samples: Mapping[str, float] = field(default_factory=dict[str, float])
    when_full: WhenFull = "wait"
    redact_fields: tuple[str, ...] = ()
    redact_keep: tuple[str, ...] = ()
    redact_patterns: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    digest_key_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Where a model is reached: `LLM_BASE_URL`, `LLM_API_KEY`, `LLM_MODEL`, `LLM_EXTRA_BODY` (a JSON object).

    `LLM_DIALECT` says which form is spoken there (`chat`, `anthropic`, `responses`); without it any. The key is left out
    of every printed form.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    dialect: Form | None = None
    extra_body: Mapping[str, Json] = field(default_factory=lambda: _NO_BODY)


# --- the project ------------------------------------------------------------------------------------------------------


def find_root(start: Path | None = None) -> Path:
    """The project's folder, looked for from `start` (default: the current folder) upwards.

    It is the nearest one that holds `loupe.toml`, `pyproject.toml` or `.git`; else `start` itself.
    """
    here = Path(os.path.realpath(start or Path.cwd()))
    for folder in (here, *here.parents):
        if any((folder / marker).exists() for marker in _MARKERS):
            return folder
    return here


def load(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings that hold in a folder (default: the current one).

    Raises:
        ConfigError: a file cannot be read, a name is unknown, a value is of the wrong kind; names file and line.
    """
    root = find_root(start)
    given = os.environ if environ is None else environ
    variables = {
        name: given[name] for name in given if name.startswith("LOUPE_")
    }  # most that are asked for are not there
    found = {**_from_files(root), **_from_environment(variables)}
    found["server"] = ServerSettings(**{**found.get("server", {}), **_of_server(variables)})
    db = found.pop("db", None)
    if ("anchors" in found) != ("anchor_key" in found):
        raise ConfigError(
            "anchors and anchor_key belong together: a file of anchors, and the public key that signed them"
        )
    for name in ("anchors", "anchor_key", "digest_key_file"):
        if name in found:
            found[name] = root / Path(found[name]).expanduser()
    return Settings(root=root, db=_place(cast("str", db), root) if db else str(root / ".loupe" / "loupe.db"), **found)


def _place(db: str, root: Path) -> str:
    """A relative path means one below the project."""
    scheme, found, rest = db.partition(":///")
    if found and scheme == "sqlite":
        return db if rest.startswith("/") else str(root / rest)
    return db if "://" in db or db == "memory:" else str(root / Path(db).expanduser())


# --- files ------------------------------------------------------------------------------------------------------------


def _from_files(root: Path) -> dict[str, Any]:
    own = root / "loupe.toml"
    if own.is_file():
        return _read_table(own, _read_toml(own, _bytes(own)))
    project = root / "pyproject.toml"
    if not project.is_file() or b"agentloupe" not in (content := _bytes(project)):
        return {}
    tools: Mapping[str, Mapping[str, Any]] = _read_toml(project, content).get("tool", {})
    return _read_table(project, tools.get("agentloupe", {}))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as wrong:
        raise ConfigError(f"{path} cannot be read: {wrong.strerror}") from wrong


def _read_toml(path: Path, content: bytes) -> Mapping[str, Any]:
    import tomllib

    try:
        return _parsed(content.decode("utf-8"))
    except tomllib.TOMLDecodeError as wrong:
        line = re.search(r"line (\d+)", str(wrong))
        raise ConfigError(f"{path}:{line[1] if line else 1}: not valid TOML: {wrong}") from wrong
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{path} is not UTF-8") from wrong


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> Mapping[str, Any]:
    """What a file says; it is asked for with every run, and parsing it takes longer than the beginning of a replay."""
    import tomllib

    return tomllib.loads(text)


def _read_table(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name in _RULES and isinstance(value, dict):
            found.update(_rules(path, name, cast("Mapping[str, Any]", value)))
        elif name == "profiles" and isinstance(value, dict):
            texts = _texts_by_name(path, name, value)
            found[name] = {n: _checked(f"{_at(path, n)}: profiles.{n}", read_profile, v) for n, v in texts.items()}
        elif name == "samples" and isinstance(value, dict):
            shares = cast("Mapping[str, Any]", value)
            found[name] = {n: _checked(f"{_at(path, n)}: samples.{n}", read_share, v) for n, v in shares.items()}
        elif name == "live" and isinstance(value, dict):
            found["live"] = _texts_by_name(path, name, value)
        elif name == "server" and isinstance(value, dict):
            found["server"] = _named(path, name, cast("Mapping[str, Any]", value), SERVER_READERS)
        elif name == "recording" and isinstance(value, dict):
            found |= _named(path, name, cast("Mapping[str, Any]", value), RECORDING_READERS)
        elif name == "endpoints" and isinstance(value, dict):
            found["endpoints"] = {n: _endpoint(path, n, v) for n, v in cast("Mapping[str, Any]", value).items()}
        elif name in _READERS:
            found[name] = _checked(f"{_at(path, name)}: {name}", _READERS[name], value)
        else:
            raise ConfigError(f"{_at(path, name)}: unknown setting {name!r}", hint=f"known: {_known()}")
    return found


def _endpoint(path: Path, name: str, value: Any) -> EndpointSettings:
    table = _texts_by_name(path, f"endpoints.{name}", value)
    for unknown in table.keys() - _ENDPOINT_FIELDS:
        known = ", ".join(sorted(_ENDPOINT_FIELDS))
        raise ConfigError(f"{_at(path, unknown)}: endpoints.{name}.{unknown} is unknown", hint=f"known: {known}")
    if "base_url" not in table:
        raise ConfigError(f"{path}: endpoints.{name} has no base_url")
    if "dialect" in table:
        _checked(f"{_at(path, 'dialect')}: endpoints.{name}.dialect", _dialect, table["dialect"])
    return EndpointSettings(**cast("Any", table))


_ENDPOINT_FIELDS = frozenset(EndpointSettings.__dataclass_fields__)


_RULES: Mapping[str, str] = {"secrets": "secret", "redaction": "redact"}
"""Tables of rules of removal, and how the names of their settings begin."""


def _rules(path: Path, table_name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    prefix = _RULES[table_name]
    for name, value in table.items():
        where = f"{_at(path, name)}: {table_name}.{name}"
        if name in ("fields", "keep"):
            found[f"{prefix}_{name}"] = _checked(where, _names, value)
        elif name == "patterns":
            found[f"{prefix}_patterns"] = patterns = _texts_by_name(path, name, value)
            for label, pattern in patterns.items():
                _checked(f"{_at(path, label)}: {table_name}.patterns.{label}", _pattern, pattern)
        else:
            raise ConfigError(f"{where} is unknown", hint="known: fields, keep, patterns")
    return found


def _named(
    path: Path, table_name: str, table: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        where = f"{_at(path, name)}: {table_name}.{name}"
        if name not in readers:
            raise ConfigError(f"{where} is unknown", hint=f"known: {', '.join(readers)}")
        found[name] = _checked(where, readers[name], value)
    return found


def _texts_by_name(path: Path, name: str, value: Any) -> dict[str, str]:
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    if table is None or not all(isinstance(text, str) and text for text in table.values()):
        raise ConfigError(f"{_at(path, name)}: {name} must be a table of texts")
    return cast("dict[str, str]", table)


def _at(path: Path, name: str) -> str:
    """File and line where a name is first set; the file alone where that cannot be told."""
    pattern = re.compile(
        rf"^\s*[\[\"']*(?:[\w.-]+\.)?{re.escape(name)}[\"'\]]*\s*(?:=|$)|[{{,]\s*{re.escape(name)}\s*="
    )
    for number, line in enumerate(_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        if pattern.search(line):
            return f"{path}:{number}"
    return str(path)


# --- values -----------------------------------------------------------------------------------------------------------


def _checked(where: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except (ValueError, TypeError) as wrong:
        raise ConfigError(f"{where} {wrong}") from wrong


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError("must be a text that is not empty")
    return value.strip()


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise ValueError("must be true or false")


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return cast("str", value)

    return read


_dialect = _one_of("chat", "anthropic", "responses", "gemini", "converse")


def _seconds(value: Any) -> float:
    seconds = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    if not 0 < seconds < float("inf"):
        raise ValueError("must be a number of seconds, more than 0")
    return seconds


def _names(value: Any) -> tuple[str, ...]:
    parts: list[Any] = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):  # type: ignore[redundant-expr]
        raise TypeError("must be a list of names")
    return tuple(name for part in parts if (name := part.strip()))


def _outbox(value: Any) -> tuple[str, ...]:
    """Types of events: the usual ones (`true`, `"on"`), none (`false`, `"off"`), or those that are named."""
    if value in (True, "on", "true", "1"):
        return DEFAULT_TYPES
    if value in (False, "off", "false", "0"):
        return ()
    types = _names(value)
    unknown = [one for one in types if one not in EVENT_TYPES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no type of an event")
    return types


def _pattern(value: str) -> str:
    try:
        matches_nothing = re.compile(value).search("")
    except re.error as wrong:
        raise ValueError(f"is no regular expression: {wrong}") from wrong
    if matches_nothing:
        raise ValueError("matches the empty text")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "db": _text,
    "strict": _switch,
    "write_without_store": _one_of("refuse", "allow"),
    "schedule": _one_of("exact", "no_baton", "off"),
    "stuck_after": _seconds,
    "lookup_timeout": _seconds,
    "env": _names,
    "model_urls": _names,
    "control_tools": _names,
    "pass_trace_on": _switch,
    "outbox": _outbox,
    "anchors": _text,
    "anchor_key": _text,
    "profile": read_profile,
    "sample": read_share,
    "digest_key_file": _text,
}


RECORDING_READERS: Mapping[str, Callable[[Any], Any]] = {"when_full": _one_of("wait", "drop_bodies")}
"""What the table `recording` may set."""


def _known() -> str:
    return ", ".join(sorted((*_READERS, *_RULES, "profiles", "samples", "recording", "live", "endpoints", "server")))


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Variables of other parts of Loupe (`LOUPE_SESSION` ...) are not settings and are passed over."""
    recording = _from_variables(environ, "LOUPE_RECORDING_", RECORDING_READERS)
    return {**_from_variables(environ, "LOUPE_", _READERS), **recording}


def _of_server(environ: Mapping[str, str]) -> dict[str, Any]:
    return _from_variables(environ, "LOUPE_SERVER_", SERVER_READERS)


def _from_variables(
    environ: Mapping[str, str], prefix: str, readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, read in readers.items():
        variable = f"{prefix}{name.upper()}"
        value = environ.get(variable)
        if value is not None and value.strip():
            found[name] = _checked(f"the variable {variable}", read, value)
    return found


# --- .env -------------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_dotenv(path: Path) -> dict[str, tuple[str, int]]:
    r"""Names and values of a `.env` file, each with its line.

    A line is empty, a comment, or `NAME=VALUE` (`export` before it is allowed). A value in single quotes is taken as it
    is; in double quotes `\n \t \r \" \\` are escapes; without quotes it ends at ` #`. One line each, no substitution.

    Raises:
        ConfigError: a line is something else; names file and line, never the value.
    """
    found: dict[str, tuple[str, int]] = {}
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{path} is not UTF-8") from wrong
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}:{number}: expected NAME=VALUE")
        found[match[1]] = (_env_value(match[2], f"{path}:{number}"), number)
    return found


def _env_value(text: str, where: str) -> str:
    if text[:1] not in ("'", '"'):
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    match = _QUOTED.fullmatch(text)
    if match is None:
        raise ConfigError(f"{where}: the quotes do not close, or text follows them")
    if match[2] is not None:
        return match[2]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match[1])


def model_settings(start: Path | None = None, environ: Mapping[str, str] | None = None) -> ModelSettings:
    """The `LLM_*` settings: variables of the environment, over those of the nearest `.env` (not above the project).

    Raises:
        ConfigError: `.env` cannot be understood, or `LLM_EXTRA_BODY` is no JSON object; names the place, never a value.
    """
    value = _variables(start, environ)
    extra, where = value("LLM_EXTRA_BODY")
    dialect, said = value("LLM_DIALECT")
    return ModelSettings(
        base_url=value("LLM_BASE_URL")[0],
        api_key=value("LLM_API_KEY")[0],
        model=value("LLM_MODEL")[0],
        dialect=cast("Form", _checked(said, _dialect, dialect)) if dialect else None,
        extra_body=_json_object(extra, where) if extra else {},
    )


def places_of_model(start: Path | None = None, environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Where address, model and key are set: `the environment`, or `.env:3`; `None` where they are not.

    Raises:
        ConfigError: `.env` cannot be understood.
    """
    value = _variables(start, environ)
    names = {"base_url": "LLM_BASE_URL", "model": "LLM_MODEL", "key": "LLM_API_KEY"}
    found: dict[str, str | None] = {}
    for said, name in names.items():
        text, where = value(name)
        in_file = where.rpartition("/")[2].removesuffix(f": {name}")
        found[said] = None if text is None else "the environment" if where.startswith("the variable") else in_file
    return found


def variable(name: str, start: Path | None = None) -> str | None:
    """A variable of the environment, or of the nearest `.env`; `None` where it is not set, or empty."""
    return _variables(start, None)(name)[0]


def _variables(start: Path | None, environ: Mapping[str, str] | None) -> Callable[[str], tuple[str | None, str]]:
    """Looks a variable up: its value, and where it is set."""
    env = os.environ if environ is None else environ
    path = _nearest_dotenv(start)
    from_file = read_dotenv(path) if path else {}

    def value(name: str) -> tuple[str | None, str]:
        if env.get(name, "").strip():
            return env[name].strip(), f"the variable {name}"
        text, line = from_file.get(name, ("", 0))
        return text.strip() or None, f"{path}:{line}: {name}"

    return value


def _nearest_dotenv(start: Path | None) -> Path | None:
    here, root = (start or Path.cwd()).resolve(), find_root(start)
    for folder in (here, *here.parents):
        if (folder / ".env").is_file():
            return folder / ".env"
        if folder == root:
            break
    return None


def _json_object(text: str, where: str) -> dict[str, Json]:
    try:
        value = loads(text)
    except JsonFault as wrong:
        raise ConfigError(f"{where} is not JSON: {wrong}") from wrong
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a JSON object")
    return value
