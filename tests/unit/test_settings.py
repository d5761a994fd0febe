"""Settings: where they come from, who wins, and errors that name the line and never a value."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentloupe.ports.settings import find_root, load, model_settings, read_dotenv
from agentloupe.words.errors import ConfigError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_without_any_file_the_store_lies_in_the_folder(workdir: Path) -> None:
    settings = load(environ={})
    assert settings.db == str(workdir / ".loupe" / "loupe.db")
    assert (settings.strict, settings.write_without_store) == (False, "refuse")


@pytest.mark.parametrize("marker", ["loupe.toml", "pyproject.toml", ".git"])
def test_the_project_is_the_nearest_folder_with_a_marker(workdir: Path, marker: str) -> None:
    write(workdir / marker, "")
    deep = workdir / "a" / "b"
    deep.mkdir(parents=True)
    assert find_root(deep) == workdir
    assert load(deep, {}).db == str(workdir / ".loupe" / "loupe.db")


def test_loupe_toml_is_read_and_variables_go_over_it(workdir: Path) -> None:
    write(
        workdir / "loupe.toml",
        'db = "runs.db"\nstrict = true\nenv = ["TZ"]\n[secrets]\nfields = ["pin"]\nkeep = ["csrf_token"]\n'
        'patterns = { ticket = "T-[0-9]+" }\n[live]\ncalculate = "arithmetic"\n',
    )
    settings = load(environ={"LOUPE_STRICT": "off", "LOUPE_ENV": "A, B", "LOUPE_SESSION": "not a setting"})
    assert settings.db == str(workdir / "runs.db")
    assert settings.strict is False
    assert settings.env == ("A", "B")
    assert (settings.secret_fields, settings.secret_keep) == (("pin",), ("csrf_token",))
    assert settings.secret_patterns == {"ticket": "T-[0-9]+"}
    assert settings.live == {"calculate": "arithmetic"}


def test_pyproject_is_read_where_there_is_no_loupe_toml(workdir: Path) -> None:
    write(workdir / "pyproject.toml", '[project]\nname = "x"\n[tool.agentloupe]\nwrite_without_store = "allow"\n')
    assert load(environ={}).write_without_store == "allow"
    write(workdir / "loupe.toml", "")
    assert load(environ={}).write_without_store == "refuse"


@pytest.mark.parametrize(
    ("db", "where"),
    [
        ("sqlite:///x.db", "{root}/x.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("/abs/x.db", "/abs/x.db"),
        ("memory:", "memory:"),
        ("other://host/x", "other://host/x"),
    ],
)
def test_relative_places_lie_in_the_project(workdir: Path, db: str, where: str) -> None:
    assert load(environ={"LOUPE_DB": db}).db == where.format(root=workdir)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("strict = maybe", 1, "not valid TOML"),
        ('\n\nstrict = "perhaps"', 3, "true or false"),
        ("colour = 1", 1, "unknown setting 'colour'"),
        ("[secrets]\nfield = []", 2, "secrets.field is unknown"),
        ('[secrets]\npatterns = { bad = "(" }', 2, "no regular expression"),
        ('[secrets.patterns]\nall = ".*"', 2, "matches the empty text"),
        ("[live]\ncalculate = true", 1, "table of texts"),
        ('write_without_store = "sometimes"', 1, "one of refuse, allow"),
        ("env = 3", 1, "list of names"),
    ],
)
def test_a_fault_names_file_and_line(workdir: Path, text: str, line: int, says: str) -> None:
    path = write(workdir / "loupe.toml", text)
    with pytest.raises(ConfigError) as raised:
        load(environ={})
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert says in str(raised.value)


def test_a_fault_in_a_variable_names_the_variable(workdir: Path) -> None:
    with pytest.raises(ConfigError, match="LOUPE_STRICT must be true or false"):
        load(environ={"LOUPE_STRICT": "7"})


# --- .env -------------------------------------------------------------------------------------------------------------


def test_dotenv_forms(workdir: Path) -> None:
    path = write(
        workdir / ".env",
        "\ufeff# a comment\n\nA=plain value  # said why\nexport B='single # \"quoted\"'\n"
        'C="two\\nlines \\"q\\" \\\\"   # c\nD=\nE=a#b\nF = spaced\nA=again\n',
    )
    values = {name: value for name, (value, _) in read_dotenv(path).items()}
    assert values == {
        "A": "again",
        "B": 'single # "quoted"',
        "C": 'two\nlines "q" \\',
        "D": "",
        "E": "a#b",
        "F": "spaced",
    }
    assert read_dotenv(path)["E"][1] == 7


@pytest.mark.parametrize("line", ["just words", "1A=x", 'A="open', "A='x' y", "=x"])
def test_a_dotenv_line_that_is_something_else_is_named_without_its_value(workdir: Path, line: str) -> None:
    path = write(workdir / ".env", f"OK=1\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        read_dotenv(path)
    assert str(raised.value).startswith(f"{path}:2: ")
    assert line not in str(raised.value)


def test_model_settings_come_from_the_nearest_dotenv_under_variables(workdir: Path) -> None:
    write(workdir / "pyproject.toml", "")
    write(workdir / ".env", "LLM_BASE_URL=http://127.0.0.1:1/v1\nLLM_API_KEY=LOUPE-CANARY-1\nLLM_MODEL=file\n")
    deep = workdir / "a" / "b"
    deep.mkdir(parents=True)
    found = model_settings(deep, {"LLM_MODEL": "variable", "LLM_EXTRA_BODY": '{"top_k": 1}'})
    assert (found.base_url, found.api_key, found.model) == ("http://127.0.0.1:1/v1", "LOUPE-CANARY-1", "variable")
    assert found.extra_body == {"top_k": 1}
    assert "CANARY" not in repr(found)


def test_a_dotenv_above_the_project_is_not_read(workdir: Path) -> None:
    write(workdir / ".env", "LLM_MODEL=foreign\n")
    project = workdir / "project"
    write(project / "pyproject.toml", "")
    assert model_settings(project, {}).model is None


@pytest.mark.parametrize("body", ["{not json", "[1]", '{"a": 1, "a": 2}'])
def test_an_extra_body_that_is_no_object_names_its_line(workdir: Path, body: str) -> None:
    path = write(workdir / ".env", f"LLM_MODEL=x\nLLM_EXTRA_BODY='{body}'\n")
    with pytest.raises(ConfigError) as raised:
        model_settings(environ={})
    assert str(raised.value).startswith(f"{path}:2: LLM_EXTRA_BODY")


def test_limits_of_the_server_are_read_from_file_and_environment(tmp_path: Path) -> None:
    (tmp_path / "loupe.toml").write_text('[server]\nmax_body = 10\nmax_depth = 3\nhosts = ["Loupe.Example"]\n')
    found = load(tmp_path, {"LOUPE_SERVER_MAX_BODY": "20"}).server
    assert (found.max_body, found.max_depth, found.hosts) == (20, 3, ("loupe.example",))
    assert found.max_upload == 200_000_000


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("max_body = 0", "at least 1"),
        ("max_body = true", "whole number"),
        ("hosts = 3", "list"),
        ("size = 1", "unknown"),
    ],
)
def test_a_wrong_limit_names_its_line(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "loupe.toml").write_text(f"[server]\n{line}\n")
    with pytest.raises(ConfigError, match=rf"loupe\.toml:2: server\.{line.split(maxsplit=1)[0]}.*{told}"):
        load(tmp_path, {})


def test_a_project_file_is_read_once(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workdir / "pyproject.toml", '[project]\ndependencies = ["agentloupe"]\n')
    read: list[Path] = []
    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or plain(path))
    load(environ={})
    assert [path.name for path in read] == ["pyproject.toml"]


def test_a_file_is_parsed_once_as_long_as_it_says_the_same(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    plain = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.append(text) or plain(text))
    told = f"# {workdir}\n"  # no other test has the same
    write(workdir / "loupe.toml", f"{told}strict = true\n")
    assert [load(environ={}).strict for _ in range(3)] == [True] * 3
    assert len(parsed) == 1
    write(workdir / "loupe.toml", f"{told}strict = false\n")
    assert load(environ={}).strict is False
    assert len(parsed) == 2
    write(workdir / "loupe.toml", f"{told}strict = \n")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"loupe\.toml:2: not valid TOML"):
            load(environ={})
