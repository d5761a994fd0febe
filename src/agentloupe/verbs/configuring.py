"""Changes what a project's files set, as far as a page may: tools that may run live with their reasons, and prices.

Everything else in the files stays as it is, comments too. Addresses of models are not among it: an address together with
the name of a variable would be a way to send any secret of the environment elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

from agentloupe.engine.costs import PriceTable
from agentloupe.ports.settings import load
from agentloupe.verbs.pricing import prices_file
from agentloupe.words.canonical import digest_parts
from agentloupe.words.errors import ConfigError, Refused, UsageError
from agentloupe.words.jsontext import Json, dumps, loads

__all__ = ["SettingsFiles", "WrongSetting", "change_settings", "files_of", "line_in", "prices_told"]

_MOST: Final = 1000
_TABLE: Final = re.compile(r"\s*\[+\s*([^\]#]+?)\s*\]+\s*(?:#.*)?")
_PRICES: Final = ("input", "output", "cached_input", "cache_write")
_ONE_AT_A_TIME: Final = threading.Lock()


class WrongSetting(UsageError):
    """What a setting shall be is wrong. `place` names it."""

    def __init__(self, message: str, reason: str, place: str) -> None:
        super().__init__(message, reason=reason)
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFiles:
    """The files of a project that settings are written to; they need not be there yet.

    Attributes:
        root: the project's folder.
        settings: `loupe.toml`, or `pyproject.toml` where that has `[tool.agentloupe]`.
        table: the tables that settings stand in, from the top of that file.
        prices: the user's own prices.
    """

    root: Path
    settings: Path
    table: tuple[str, ...]
    prices: Path

    def version(self) -> str:
        """A text that changes when one of the files does."""
        return digest_parts((_bytes(self.settings), b"\0", _bytes(self.prices)))[:16]

    def read_only(self) -> str | None:
        """Why nothing can be changed here; `None` where it can."""
        for path in (self.settings, self.prices):
            there = path if path.exists() else path.parent
            if not os.access(there, os.W_OK):
                return f"{path.name} cannot be written by this process"
        return None


def files_of(root: Path) -> SettingsFiles:
    """The files of the project in a folder."""
    own, project = root / "loupe.toml", root / "pyproject.toml"
    in_project = not own.is_file() and re.search(rb"^\s*\[\s*tool\.agentloupe\b", _bytes(project), re.MULTILINE)
    settings, table = (project, ("tool", "agentloupe")) if in_project else (own, ())
    return SettingsFiles(root=root, settings=settings, table=table, prices=prices_file(root) or root / "prices.json")


def line_in(files: SettingsFiles, table: str, name: str | None) -> str | None:
    """`loupe.toml:7`: where a name of a table is set (`None`: where the table begins); `None` where that is not seen."""
    wanted = ".".join((*files.table, *([table] if table else [])))
    lines = _bytes(files.settings).decode("utf-8", "replace").splitlines()
    here, found = "", None
    for number, line in enumerate(lines, 1):
        header = _TABLE.fullmatch(line)
        if header is not None:
            here = header[1].replace('"', "").replace("'", "").replace(" ", "")
            if here == wanted and name is None:
                found = number
        elif name is not None and _sets(line, here, f"{wanted}.{name}" if wanted else name):
            found = number
        elif _sets(line, here, wanted):
            found = number  # an inline table
    return None if found is None else f"{files.settings.name}:{found}"


def _sets(line: str, table: str, wanted: str) -> bool:
    key, equals, _ = line.partition("=")
    bare = key.strip().replace('"', "").replace("'", "").replace(" ", "")
    return bool(equals) and bool(bare) and (f"{table}.{bare}" if table else bare) == wanted


def change_settings(
    files: SettingsFiles,
    version: str,
    *,
    live: Mapping[str, str] | None = None,
    prices: Mapping[str, Json] | None = None,
) -> None:
    """Changes what is given, the whole of it, and nothing else; every check comes before the first write.

    Args:
        files: of the project.
        version: of the files as they were read.
        live: tools that a fork may run live, each with its written reason.
        prices: `{currency?, per?, models: {NAME: {input, output, cached_input?, cache_write?}}}`, as `prices.json` has it.

    Raises:
        WrongSetting: a tool has no name or no reason, a price is none; names the place.
        Refused: the files were changed meanwhile (`settings_changed`), are at fault (`settings_fault`), or cannot be
            written (`read_only`).
    """
    if live is not None:
        _check_live(live)
    with _ONE_AT_A_TIME:
        _unchanged(files, version)
        texts: dict[Path, str] = {}
        if live is not None:
            texts[files.settings] = _with_live(files, live)
        if prices is not None:
            texts[files.prices] = _with_prices(files, prices)
        for path, text in texts.items():
            _put(path, text)


# --- tools that may run live ------------------------------------------------------------------------------------------


def _check_live(live: Mapping[str, str]) -> None:
    if len(live) > _MOST:
        raise WrongSetting(f"more than {_MOST:,} tools", "live", "live")
    for name, reason in live.items():
        if not name.strip() or not reason.strip():
            what = "a tool needs a name" if not name.strip() else f"tool {name!r} needs a written reason to run live"
            raise WrongSetting(what, "live", f"live.{name}")
        if not (name + reason).isprintable() or len(name) > 500 or len(reason) > 2000:
            raise WrongSetting("a name or reason is one line of text", "live", f"live.{name}")


def _with_live(files: SettingsFiles, live: Mapping[str, str]) -> str:
    """The file's text with other live tools; what was there keeps its comments and its place."""
    import tomlkit

    document = tomlkit.parse(_bytes(files.settings).decode("utf-8"))
    table: Any = document
    for name in files.table:
        table = table[name]
    if "live" not in table:
        table["live"] = tomlkit.table()
    there: Any = table["live"]
    for name in [name for name in there if name not in live]:
        del there[name]
    for name, reason in live.items():
        if there.get(name) != reason:
            there[name] = reason
    text = tomlkit.dumps(document)
    said: Any = tomllib.loads(text)
    for name in (*files.table, "live"):
        said = said[name]
    assert said == dict(live), "what was written does not read as what was meant"
    return text


# --- prices -----------------------------------------------------------------------------------------------------------


def _with_prices(files: SettingsFiles, prices: Mapping[str, Json]) -> str:
    """The text of the file of prices with other ones; members that are not of ours stay."""
    text = _bytes(files.prices)
    before = loads(text) if text else {}
    merged: dict[str, Json] = {**(before if isinstance(before, dict) else {}), **prices}
    _check_prices(files, merged)
    return json.dumps(merged, indent=2, ensure_ascii=False, default=str) + "\n"


def _check_prices(files: SettingsFiles, document: Mapping[str, Json]) -> None:
    with tempfile.TemporaryDirectory(prefix="loupe-prices-") as folder:
        draft = Path(folder) / files.prices.name
        draft.write_bytes(dumps(dict(document)))
        try:
            PriceTable.load(draft)
        except ConfigError as wrong:
            said = wrong.message.replace(f"{draft}: ", "")
            raise WrongSetting(said, "prices", f"prices.{said.partition(':')[0]}") from wrong


def prices_told(files: SettingsFiles) -> dict[str, Any]:
    """The project's own prices as they are written: `{currency, per, models: [{model, input, output, ...}]}`.

    Raises:
        ConfigError: the file is no price table.
    """
    if not files.prices.is_file():
        return {"currency": "USD", "per": "1M tokens", "models": []}
    PriceTable.load(files.prices)
    said = cast("dict[str, Any]", json.loads(_bytes(files.prices), parse_float=Decimal, parse_int=Decimal))
    models = cast("dict[str, dict[str, Any]]", said["models"])
    return {
        "currency": str(said.get("currency", "USD")),
        "per": str(said.get("per", "1M tokens")),
        "models": [
            {"model": name, **{one: None if row.get(one) is None else str(row[one]) for one in _PRICES}}
            for name, row in models.items()
        ],
    }


# --- files ------------------------------------------------------------------------------------------------------------


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _unchanged(files: SettingsFiles, version: str) -> None:
    """Raises `Refused` where the files are not what was read, or nothing can be written into them."""
    why = files.read_only()
    if why is not None:
        raise Refused(why, hint=f"edit {files.settings} by hand", reason="read_only")
    if files.version() != version:
        raise Refused(
            "the settings were changed meanwhile",
            hint="read them again, and change them then",
            reason="settings_changed",
        )
    try:
        load(files.root)
        prices_told(files)
    except ConfigError as wrong:
        raise Refused(wrong.message, hint="mend the file first", reason="settings_fault") from wrong


def _put(path: Path, text: str) -> None:
    """Writes a file whole or not at all, with the rights that it had; a link stays a link."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(target)
    except OSError as wrong:
        with suppress(OSError):
            draft.unlink()
        raise Refused(
            f"{path.name} cannot be written: {wrong.strerror}", hint=f"edit {path} by hand", reason="read_only"
        ) from wrong
