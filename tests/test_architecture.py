"""The picture in docs/internals/ARCHITECTURE.md as a test: who may import whom, which names live where, how large.

A layer is a folder (adapters are five of them); a new folder belongs into `LAYER_OF`; a rule that turns out wrong is changed here together
with the picture, and a decision record says why.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT, SRC

PACKAGE = "agentloupe"

# Layer by room (folder or module directly under the package). Layers of one rank do not know each other.
LAYER_OF = {
    "words": "WORDS",
    "ports": "PORTS",
    "engine": "ENGINE",
    **dict.fromkeys(("store", "providers", "importers", "exporters", "vault"), "ADAPTERS"),
    **dict.fromkeys(("verbs", "demo"), "VERBS"),
    **dict.fromkeys(("cli", "server", "__main__", "pytest_plugin"), "DOORS"),
}
RANK = {"WORDS": 0, "PORTS": 1, "ENGINE": 2, "ADAPTERS": 2, "VERBS": 3, "DOORS": 4}
FRONT = "__init__"  # the public names: sees everything below the doors

# A module may be imported only by files that match; keys are top-level names of foreign modules.
WHERE: dict[str, tuple[str, ...]] = {
    "hashlib": ("words/canonical.py", "words/seal.py", "words/merkle.py"),
    "cryptography": ("vault/",),
    "hmac": ("words/canonical.py", "words/seal.py", "server/auth.py"),  # there for comparing in constant time
    "sqlite3": ("store/",),
    "random": ("ports/ids.py", "verbs/reads.py"),
    "uuid": ("ports/ids.py", "verbs/reads.py"),
    "secrets": ("ports/ids.py",),
    "typer": ("cli/",),
    "click": ("cli/",),
    "rich": ("cli/",),
    "openai": ("providers/",),
    "anthropic": ("providers/",),
    "httpx": ("providers/",),
    "httpx2": ("providers/",),
    "requests": ("providers/",),
    "urllib3": ("providers/",),
    "aiohttp": ("providers/",),
    "multidict": ("providers/",),
    "genai_prices": ("engine/costs.py",),
    "pytest": ("pytest_plugin.py",),
    # never: code that comes out of data, and weights that the core does without
    **dict.fromkeys(("pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"), ()),
    **dict.fromkeys(("pydantic", "fastapi", "starlette", "uvicorn"), ("server/",)),
    "sqlalchemy": (),
}
CLOCK_AND_CHANCE = ("ports/ids.py", "verbs/reads.py")
CLOCK_CALLS = frozenset(
    {
        *("time.time", "time.time_ns", "os.urandom", "date.today", "datetime.date.today"),
        *(f"{d}.{m}" for d in ("datetime", "datetime.datetime") for m in ("now", "utcnow", "today")),
    }
)
SORTS_KEYS = ("words/canonical.py", "words/seal.py")
CODE_FROM_TEXT = frozenset({"eval", "exec", "compile", "__import__"})
SQL = re.compile(
    r"^\s*(SELECT\s.+\sFROM\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s"
    r"|CREATE\s+(UNIQUE\s+)?(TABLE|INDEX|TRIGGER|VIEW)\s|PRAGMA\s|BEGIN\s+IMMEDIATE)",
    re.DOTALL,
)

FUNCTION_LINES, FILE_LINES = 70, 800
MEDIAN_LIMIT, P95_LIMIT = 12, 45  # of function lengths: a ratchet, only ever tightened; the aim is 9 and 45


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path  # below the package folder
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    @property
    def room(self) -> str:
        return self.path.parts[0].removesuffix(".py")

    def inside(self, places: tuple[str, ...]) -> bool:
        text = self.path.as_posix()
        return any(text.startswith(p) if p.endswith("/") else text == p for p in places)

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"src/{PACKAGE}/{self.path}:{node.lineno}"


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package. Parsed once a process."""
    found: list[Module] = []
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text("utf-8")
        found.append(Module(path.relative_to(SRC), ast.parse(text, str(path)), text.count("\n")))
    return tuple(found)


def imports(module: Module, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[str, ast.stmt]]:
    """Dotted names that a module imports, with the place; `from a import b` gives `a.b`, relative ones made absolute."""
    for node in nodes if nodes is not None else ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = (PACKAGE, *module.path.parts[:-1])
                base = ".".join((*parts[: len(parts) - node.level + 1], *([base] if base else [])))
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: no function bodies, nothing that is for type checkers only."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import_time(child)


def room_of(dotted: str) -> str | None:
    """The room that an imported name lies in; None for foreign modules, FRONT for public names of the package."""
    parts = dotted.split(".")
    if parts[0] != PACKAGE or dotted == f"{PACKAGE}.__version__":
        return None  # the version is a fact, no door
    inner = parts[1] if len(parts) > 1 else ""
    return inner if inner in LAYER_OF else FRONT


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the constants that are docstrings, of modules, classes, functions and documented names."""
    return {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}


def complain(faults: list[str], rule: str) -> None:
    assert not faults, rule + "\n  " + "\n  ".join(faults)


# ---------------------------------------------------------------- layers


def test_every_module_has_its_place_in_the_picture() -> None:
    faults = [
        f"src/{PACKAGE}/{m.path}: the room {m.room!r} is unknown"
        for m in modules()
        if m.room not in LAYER_OF and m.room != FRONT
    ]
    complain(faults, "put the module into the folder of its layer, or add the folder to LAYER_OF")


def _wrong_way(here: Module, there: str) -> str | None:
    """Why this import is not allowed, or None."""
    if there == FRONT:
        return None if here.room == FRONT or LAYER_OF[here.room] == "DOORS" else "only doors import the public names"
    if here.room == FRONT:
        return "the public names know no door" if LAYER_OF[there] == "DOORS" else None
    mine, theirs = LAYER_OF[here.room], LAYER_OF[there]
    if RANK[theirs] > RANK[mine]:
        return f"{mine} below imports {theirs} above"
    if RANK[theirs] == RANK[mine] and mine != theirs:
        return f"{mine} and {theirs} do not know each other"
    if mine == theirs == "ADAPTERS" and here.room != there:
        return "an adapter imports a sibling"
    return None


def test_imports_point_down_only() -> None:
    faults: list[str] = []
    for module in (m for m in modules() if m.room in LAYER_OF or m.room == FRONT):
        for dotted, node in imports(module):
            there = room_of(dotted)
            why = _wrong_way(module, there) if there is not None else None
            if why:
                faults.append(f"{module.at(node)} imports {dotted}: {why}")
    complain(faults, "imports point down only: WORDS < PORTS < (ENGINE | ADAPTERS) < VERBS < DOORS")


@pytest.mark.parametrize(
    ("path", "there", "allowed"),
    [
        ("words/call.py", "engine", False),
        ("store/sqlite.py", "engine", False),
        ("store/sqlite.py", "importers", False),
        ("store/sqlite.py", "store", True),
        ("engine/recorder.py", "store", False),
        ("engine/recorder.py", "words", True),
        ("verbs/api.py", "store", True),
        ("verbs/api.py", "cli", False),
        ("verbs/api.py", "server", False),
        ("server/app.py", "verbs", True),
        ("cli/show.py", FRONT, True),
        ("engine/replayer.py", FRONT, False),
        ("__init__.py", "verbs", True),
        ("__init__.py", "cli", False),
    ],
)
def test_the_rule_about_imports_bites(path: str, there: str, allowed: bool) -> None:
    assert (_wrong_way(Module(Path(path), ast.Module([], []), 0), there) is None) is allowed


def test_no_two_modules_need_each_other_to_be_imported() -> None:
    names = {m.name for m in modules()}
    graph: dict[str, set[str]] = {}
    for module in modules():
        wanted: set[str] = set()
        for dotted, _ in imports(module, at_import_time(module.tree)):
            owner = dotted if dotted in names else dotted.rpartition(".")[0]
            if owner in names - {module.name, PACKAGE}:
                wanted.add(owner)
        graph[module.name] = wanted
    complain(_cycles(graph), "modules import each other in a circle")


def _cycles(graph: dict[str, set[str]]) -> list[str]:
    """Circles in an import graph: whatever is left when modules without open imports are taken away, again and again."""
    left = {name: set(wanted) for name, wanted in graph.items()}
    while free := {name for name, wanted in left.items() if not wanted & set(left)}:
        left = {name: wanted for name, wanted in left.items() if name not in free}
    return [f"{name} -> {', '.join(sorted(wanted & set(left)))}" for name, wanted in sorted(left.items())]


def test_a_circle_is_found() -> None:
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) != []
    assert _cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


# ---------------------------------------------------------------- names that live in one place


def test_foreign_modules_are_imported_only_where_they_belong() -> None:
    faults = [
        f"{m.at(node)} imports {dotted}; only {', '.join(WHERE[top]) or 'nobody'} may"
        for m in modules()
        for dotted, node in imports(m)
        if (top := dotted.split(".")[0]) in WHERE and not m.inside(WHERE[top])
    ]
    complain(faults, "see WHERE in tests/test_architecture.py")


def _clock_reads(tree: ast.Module) -> Iterator[ast.stmt | ast.expr]:
    """Places that name a wall clock or system randomness, as an attribute or by `from ... import`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        if not CLOCK_CALLS.isdisjoint(names):
            assert isinstance(node, ast.Attribute | ast.ImportFrom)
            yield node


def test_wall_clock_and_chance_come_from_the_ambient_helpers() -> None:
    faults = [m.at(n) for m in modules() if not m.inside(CLOCK_AND_CHANCE) for n in _clock_reads(m.tree)]
    complain(faults, f"wall clock and randomness are read in {' and '.join(CLOCK_AND_CHANCE)} only")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time\ntime.time()", 1),
        ("from time import time", 1),
        ("import datetime\ndatetime.datetime.now(datetime.UTC)", 1),
        ("from datetime import datetime\ndatetime.now()", 1),
        ("import time\ntime.monotonic()", 0),
    ],
)
def test_the_rule_about_clocks_bites(code: str, found: int) -> None:
    assert len(list(_clock_reads(ast.parse(code)))) == found


def test_sql_stands_in_the_stores_only() -> None:
    faults: list[str] = []
    for module in (m for m in modules() if not m.inside(("store/",))):
        prose = docstrings(module.tree)
        for node in ast.walk(module.tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
            if text is not None and id(node) not in prose and SQL.match(text):
                assert isinstance(node, ast.Constant)
                faults.append(f"{module.at(node)}: {text[:50]!r}")
    complain(faults, "SQL stands in store/ only")


def test_only_the_canonical_form_and_the_seal_sort_keys() -> None:
    faults: list[str] = []
    for module in (m for m in modules() if not m.inside(SORTS_KEYS)):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr == "OPT_SORT_KEYS":
                faults.append(module.at(node))
            if isinstance(node, ast.Call) and any(k.arg == "sort_keys" for k in node.keywords):
                faults.append(module.at(node))
    complain(faults, f"one canonical form: keys are sorted in {' and '.join(SORTS_KEYS)} only")


def test_no_code_is_made_out_of_text() -> None:
    faults = [
        m.at(node)
        for m in modules()
        for node in ast.walk(m.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODE_FROM_TEXT
    ]
    complain(faults, f"never: {', '.join(sorted(CODE_FROM_TEXT))}")


# ---------------------------------------------------------------- size and words


def _functions(module: Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_and_files_stay_small() -> None:
    faults = [
        f"{m.at(node)} {node.name} has {length} lines, at most {FUNCTION_LINES}"
        for m in modules()
        for node, length in _functions(m)
        if length > FUNCTION_LINES
    ]
    faults += [
        f"src/{PACKAGE}/{m.path} has {m.lines} lines, at most {FILE_LINES}" for m in modules() if m.lines > FILE_LINES
    ]
    complain(faults, "split what is too long by what it is about")


def test_lengths_by_ratchet(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = sorted(length for m in modules() for _, length in _functions(m))
    files = sorted(m.lines for m in modules())
    if len(lengths) < 20:
        pytest.skip("too few functions for a median that means something")
    median, p95 = statistics.median(lengths), statistics.quantiles(lengths, n=20)[-1]
    with capsys.disabled():
        print(
            f"\nsize: {len(files)} files, median {statistics.median(files):.0f} lines, longest {files[-1]}; "
            f"{len(lengths)} functions, median {median:.0f}, 95th percentile {p95:.0f}, longest {lengths[-1]}"
        )
    assert median <= MEDIAN_LIMIT, f"median length of a function is {median}, at most {MEDIAN_LIMIT}"
    assert p95 <= P95_LIMIT, f"95th percentile of function lengths is {p95}, at most {P95_LIMIT}"


def test_every_module_says_what_it_is() -> None:
    faults = [f"src/{PACKAGE}/{m.path}" for m in modules() if m.tree.body and not ast.get_docstring(m.tree)]
    complain(faults, "every module begins with a docstring")


def test_the_front_holds_sorted_public_names_that_exist() -> None:
    import agentloupe

    assert list(agentloupe.__all__) == sorted(agentloupe.__all__)
    assert [name for name in agentloupe.__all__ if not hasattr(agentloupe, name)] == []


# ---------------------------------------------------------------- weight

_LIST_LOADED = "import sys; before = set(sys.modules); import agentloupe; print(*(set(sys.modules) - before))"

_IMPORT_ALL_WITHOUT = """
import importlib, sys
class Shut:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"openai", "anthropic", "httpx", "httpx2", "genai_prices", "pydantic", "xllamacpp"}:
            raise ModuleNotFoundError(f"{name} is not there", name=name)
sys.meta_path.insert(0, Shut())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def _python(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = {name.split(".")[0] for name in _python(_LIST_LOADED).split()}
    foreign = {
        name for name in loaded if name.lstrip("_") not in sys.stdlib_module_names | {""}
    } - sys.stdlib_module_names
    assert foreign <= {PACKAGE, "orjson", "zstandard"}, f"import {PACKAGE} loads {sorted(foreign)}"


def test_every_module_but_the_doors_is_importable_without_the_extras() -> None:
    names = [m.name for m in modules() if LAYER_OF.get(m.room) != "DOORS"]
    _python(_IMPORT_ALL_WITHOUT, *reversed(names))


# ---------------------------------------------------------------- what the repository may not say

# One letter of each stands in brackets, so that this file does not find itself.
_PLACES = re.compile(r"(?<![\w.~$}-])(/[w]ork/|/[r]oot/|/tmp/[b]rief|/opt/([w]heels|[p]ypi))")
_SOURCES = re.compile(
    r"(?<!emit-)index-[u]rl|https?://\S*/[s]imple\b|python[h]osted|\b[p]ypi\b|registry\.[n]pmjs|find-links\s*=",
    re.IGNORECASE,
)
_WORD_EXCEPTIONS = {"LICENSE"}


def tracked() -> list[Path]:
    """Files that are under version control; skips the test, visibly, in an unpacked source archive."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository's .git")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    return [p for p in paths if p.is_file() and p.name not in _WORD_EXCEPTIONS]


@pytest.mark.parametrize("pattern", [_PLACES, _SOURCES], ids=["places of a machine", "sources of packages"])
def test_no_file_names(pattern: re.Pattern[str]) -> None:
    faults: list[str] = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                faults.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    complain(faults, "machine places and package sources are nobody's business in a file that is shared")


def test_the_rule_about_names_bites() -> None:
    assert _PLACES.search('open("' + "/".join(("", "work", "x")) + '")')
    assert not _PLACES.search("docs/" + "work/x")
    assert _SOURCES.search("-".join(("--index", "url x")))
    assert not _SOURCES.search("-".join(("--no-emit-index", "url")))


LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda p: p.stem)
def test_lock_files_pin_with_hashes_and_nothing_else(path: Path) -> None:
    entries = path.read_text("utf-8").replace("\\\n", " ").splitlines()
    shape = re.compile(r"[a-z0-9-]+(\[[a-z,]+\])?==[\w.!+]+( ; [^:/]+)?\s+(--hash=sha256:[0-9a-f]{64}\s*)+")
    complain(
        [e[:100] for e in entries if not shape.fullmatch(e)],
        f"{path.name} has lines that are no pinned, hashed package",
    )


def test_lock_files_are_found() -> None:
    peers = {f"bench-{name}" for name in ("mlflow", "phoenix", "tracefork")}
    assert {p.stem for p in LOCKS} >= {"dev", "bench", "local-model", "docs", "build", *peers}
