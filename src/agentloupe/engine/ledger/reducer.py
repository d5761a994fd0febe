"""The state of a run, derived from its lines, its budget and its contract, and nothing else.

A line gives a signal (`_signal`), and `TABLE` says where a signal leads to. What the table does not list must not happen:
it is a stop decision that the run did not keep. `agentloupe ledger replay` is this, between strict checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentloupe.engine.ledger.terms import Budget, Contract, is_count
from agentloupe.words.canonical import Json

__all__ = ["SIGNALS", "TABLE", "Reducer", "text_of"]

Line = Mapping[str, Json]

_GOING: Final = ("created", "running", "waiting", "denied", "interrupted")
_CHECKED: Final = (*_GOING, "succeeded")
_ALL: Final = (*_GOING, "retrying", "succeeded", "failed", "exhausted")

SIGNALS: Final[Mapping[str, str]] = {
    "begin": "`run_started`",
    "work": "a model, tool, retrieval or other call begins or ends",
    "attempt": "`attempt_started`",
    "deny": "`tool_denied`",
    "ask": "a required check waits for a person (`passed` is null)",
    "pass": "a required check passed, others are still to pass",
    "pass_all": "the last required check of this attempt passed",
    "retry": "a required check failed, and attempts are left",
    "exhaust": "a required check failed in the last attempt",
    "end_ok": "`run_finished`, status ok",
    "end_error": "`run_finished`, status error",
    "end_waiting": "`run_finished`, status waiting",
    "end_stopped": "`run_finished`, status cancelled or interrupted",
}
"""What the lines say, for the state. Every other line says nothing."""

TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "begin": {"": "created"},
    "work": dict.fromkeys(_GOING, "running"),
    "attempt": dict.fromkeys((*_GOING, "retrying"), "running"),
    "deny": dict.fromkeys(_GOING, "denied"),
    "ask": dict.fromkeys(_CHECKED, "waiting"),
    "pass": dict.fromkeys(_CHECKED, "running"),
    "pass_all": dict.fromkeys(_CHECKED, "succeeded"),
    "retry": dict.fromkeys(_CHECKED, "retrying"),
    "exhaust": dict.fromkeys(_CHECKED, "exhausted"),
    "end_ok": dict.fromkeys((*_GOING, "succeeded"), "succeeded"),
    "end_error": {**dict.fromkeys((*_GOING, "retrying", "succeeded"), "failed"), "exhausted": "exhausted"},
    "end_waiting": dict.fromkeys(_GOING, "waiting"),
    "end_stopped": dict.fromkeys(_ALL, "interrupted"),
}
"""Signal, then state, then the state that follows."""

_OPENS: Final = frozenset({"tool_requested", "tool_started"})
_CLOSES: Final = frozenset({"tool_finished", "tool_failed", "tool_confirmed", "tool_denied"})
_ANSWERS: Final = frozenset({"model_proposed", "model_finished"})
_WORK: Final = (
    _ANSWERS
    | _OPENS
    | {
        "tool_finished",
        "tool_failed",
        "model_requested",
        "model_failed",
        "tool_allowed",
        "retrieval_finished",
        "retrieval_failed",
    }
    | {"call_finished", "call_failed", "span_started", "span_finished"}
)
_COUNTED: Final = _ANSWERS | _OPENS | _CLOSES | {"model_requested"}
_ENDS: Final[Mapping[str, str]] = {
    "ok": "end_ok",
    "error": "end_error",
    "waiting": "end_waiting",
    "cancelled": "end_stopped",
    "interrupted": "end_stopped",
}
_COUNTS_OF_LIMITS: Final[Mapping[str, str]] = {
    "max_attempts": "attempts",
    "max_model_calls": "model_calls",
    "max_tool_calls": "tool_calls",
    "max_tokens": "tokens",
}


class Reducer:
    """Folds the lines of a ledger. No I/O; looks at lines, budget and contract only.

    Attributes:
        state: after the lines so far; `interrupted` is derived at the end only, see `final`.
        attempts, model_calls, tool_calls, tokens: what was used so far.
        refused: a signal that the table does not list for the state; set by the line that gave it.
        passed_limit: the first limit of the budget that was passed.
    """

    def __init__(self, budget: Budget, contract: Contract) -> None:
        self.budget = budget
        self.contract = contract
        self.state = ""
        self.attempts = self.model_calls = self.tool_calls = self.tokens = 0
        self.refused: str | None = None
        self.passed_limit: str | None = None
        self.ended = False
        self._required = contract.required
        self._open: set[str] = set()
        self._asked: set[str] = set()
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    @property
    def final(self) -> str:
        """The state of a run of which these are all lines: with a tool call that nobody saw end it is interrupted."""
        return "interrupted" if self._open and not self.ended else self.state

    @property
    def open_calls(self) -> int:
        """Tool calls that began and did not end."""
        return len(self._open)

    @property
    def used_up(self) -> bool:
        """Whether a further tool call would pass the budget."""
        most = self.budget.max_tool_calls
        return most is not None and self.tool_calls >= most

    def add(self, line: Line) -> None:
        """Takes the next line."""
        kind, payload = str(line["kind"]), line["payload"]
        assert isinstance(payload, dict)
        if kind in _COUNTED:
            self._count(kind, payload)
        signal = self._signal(kind, payload)
        if signal is None:
            return
        there = TABLE[signal].get(self.state)
        if there is None:
            self.refused = signal
        else:
            self.state = there

    def claims(self, claimed: str) -> bool:
        """Whether a recorded state is the derived one. A run with an open call may call itself interrupted."""
        return claimed == self.state or (claimed == "interrupted" and bool(self._open))

    def _count(self, kind: str, payload: Mapping[str, Json]) -> None:
        call = text_of(payload.get("call_id"))
        if kind == "model_requested":
            self.model_calls += 1
            self._asked.add(call)
        elif kind in _ANSWERS:
            self.model_calls += call not in self._asked
            self.tokens += sum(n for name in ("input_tokens", "output_tokens") if is_count(n := payload.get(name)))
        elif kind in _OPENS:
            self.tool_calls += kind == "tool_started"
            self._open.add(call)
        else:
            self._open.discard(call)
        self._compare()

    def _compare(self) -> None:
        for limit, count in _COUNTS_OF_LIMITS.items():
            most = getattr(self.budget, limit)
            if most is not None and getattr(self, count) > most:
                self.passed_limit = self.passed_limit or limit

    def _signal(self, kind: str, payload: Mapping[str, Json]) -> str | None:
        if kind in _WORK:
            return "work"
        if kind == "tool_denied":
            return "deny"
        if kind == "check_finished":
            return self._judged(text_of(payload.get("name")), payload.get("passed"))
        if kind == "attempt_started":
            return self._begun(payload.get("attempt", self.attempts + 1))
        if kind == "run_finished":
            self.ended = True
            return _ENDS.get(text_of(payload.get("status", "ok")), "end_error")
        return "begin" if kind == "run_started" else None

    def _judged(self, name: str, passed: Json) -> str | None:
        if self.contract.checks is not None and name not in self._required:
            return None
        if passed is None:
            return "ask"
        if passed is not True:
            self._passed.discard(name)
            self._failed.add(name)
            most = self.budget.max_attempts
            return "retry" if most is None or max(self.attempts, 1) < most else "exhaust"
        self._passed.add(name)
        self._failed.discard(name)
        return "pass_all" if self._required <= self._passed and not self._failed else "pass"

    def _begun(self, attempt: Json) -> str | None:
        """Attempts are numbered from 1; a recorder that begins to count at the second one is right, too."""
        if attempt != self.attempts + 1 and not (self.attempts == 0 and attempt == 2):
            self.refused = "attempt"
            return None
        assert isinstance(attempt, int)
        self.attempts = attempt
        self._compare()
        self._passed.clear()
        self._failed.clear()
        return "attempt"


def text_of(value: Json) -> str:
    """A name, or nothing. Never `str(value)`: a number may be too long to print."""
    return value if isinstance(value, str) else ""
