"""The sample agents: the programs of `examples/`, found in a checkout or inside the installed package.

There is one source of them. The wheel carries the folder `examples` as `agentloupe/demo/examples`; in a checkout they
are run where they stand.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from agentloupe.words.errors import NotFound

__all__ = ["SAMPLES", "code_of", "load_sample", "sample_path"]

SAMPLES: tuple[str, ...] = ("weather", "support")
"""Names of the sample agents."""

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE / "examples", _HERE.parents[2] / "examples")


def sample_path(name: str) -> Path:
    """The file of a sample agent, a program that can be run with a question as its argument.

    Raises:
        NotFound: there is no such sample, or this installation came without it.
    """
    if name not in SAMPLES:
        raise NotFound(f"no sample agent is named {name!r}", hint=f"there are {', '.join(SAMPLES)}")
    for place in _PLACES:
        path = place / name / "agent.py"
        if path.is_file():
            return path
    raise NotFound(
        f"the sample agent {name!r} is not part of this installation", hint="install the wheel, or use a checkout"
    )


def code_of(name: str) -> str:
    """`module:function` of a sample's agent, as `--code` takes it in the current folder.

    In a checkout it is the program of `examples/`; elsewhere the sample's name in this module.

    Raises:
        NotFound: see `sample_path`.
    """
    beside = Path("examples") / name / "agent.py"
    if beside.is_file() and beside.samefile(sample_path(name)):
        return f"examples.{name}.agent:assistant"
    return f"{__name__}:{name}"


def __getattr__(name: str) -> object:
    """`samples.weather` and `samples.support` are the agents themselves, loaded when they are asked for."""
    if name in SAMPLES:
        return load_sample(name).assistant
    raise AttributeError(name)


def load_sample(name: str) -> ModuleType:
    """The sample as a module (named `<name>_agent`), loaded once; its `assistant` is the agent function."""
    module_name = f"{name}_agent"
    known = sys.modules.get(module_name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(module_name, sample_path(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
