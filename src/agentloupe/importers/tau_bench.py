"""Reads tau-bench results: a list of episodes `{task_id, trial, reward, info, traj: [message ...]}`, each of which becomes a run.

The user's turns are played by another model there; here they are messages. Which model answered, with which parameters
and tools, is not in the file: a fork must be told a model. Reward and info are kept beside the run, as `extra`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentloupe.importers.building import Raw, RunBuilder, raw_of
from agentloupe.importers.conversation import add_conversation
from agentloupe.importers.files import content_of, top_keys
from agentloupe.ports.protocols import Imported, ImportedRun
from agentloupe.words.canonical import Json, loads
from agentloupe.words.errors import Corrupt

__all__ = ["TauBenchImporter"]

_FIDELITY = (
    "model calls are inferred from the assistant messages",
    "model and parameters are not known: a fork must be told a model",
    "definitions of tools and usage are not known",
)


@dataclass(frozen=True, slots=True)
class TauBenchImporter:
    """tau-bench result files."""

    format: str = "tau-bench"

    def detects(self, head: bytes) -> bool:
        """Whether it is a list of objects with a task and a trajectory (or a reward, where that comes later)."""
        opening, keys = top_keys(head)
        return opening == "[" and "task_id" in keys and bool(keys & {"traj", "reward"})

    def read(self, path: Path) -> Imported:
        """Reads all episodes.

        Raises:
            Corrupt: not strict JSON, not a list, or no episode in it.
        """
        content = content_of(path)
        try:
            episodes = loads(content)
        except ValueError as wrong:
            raise Corrupt(f"{path}: not strict JSON: {wrong}", reason="json") from wrong
        raw = raw_of(content)
        quarantined: list[str] = []
        runs: list[ImportedRun] = []
        for at, episode in enumerate(episodes if isinstance(episodes, list) else []):
            traj = episode.get("traj") if isinstance(episode, dict) else None
            if isinstance(episode, dict) and isinstance(traj, list):
                runs.append(_built(episode, traj, at, raw))
            else:
                quarantined.append(f"episode {at}: no trajectory")
        if not runs:
            raise Corrupt(f"{path}: no episode in it", reason="no_run")
        return Imported(format=self.format, runs=tuple(runs), quarantined=tuple(quarantined))


def _built(episode: dict[str, Json], traj: list[Json], at: int, raw: Raw) -> ImportedRun:
    task, trial = episode.get("task_id", at), episode.get("trial", 0)
    builder = RunBuilder(f"tau-bench-{_plain(task)}-{_plain(trial)}", "tau-bench", raw, episode)
    trailing: dict[str, Json] = {}
    extra = {name: value for name, value in episode.items() if name != "traj"}
    after = next((n for n in reversed(range(len(traj))) if _is_answer(traj[n])), -1)
    if traj[after + 1 :]:
        trailing = {"trailing": traj[after + 1 :]}
    builder.start(
        agent="tau-bench",
        name=f"task {_plain(task)}, trial {_plain(trial)}",
        tags=("tau-bench",),
        facts={"task_id": f"tau-bench-{_plain(task)}"},
        extra={**extra, **trailing},
    )
    add_conversation(builder, traj, pending=False)
    builder.finish()
    return builder.made(_FIDELITY)


def _is_answer(message: Json) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _plain(value: Json) -> str:
    """A number or name that can stand in an id."""
    return "".join(c if c.isalnum() or c in "_." else "-" for c in str(value))[:40] or "x"
