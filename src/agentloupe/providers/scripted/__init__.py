"""A model without chance, for tests and for the demo where no real model is at hand.

It plays a list of answers, or the two sample agents by rule (`sample_rule`), in process (`ScriptedModel`) or behind a
loopback address that real clients talk to (`ScriptedServer`).
"""

from agentloupe.providers.scripted.answers import Answer, Ask, Done, ToolCall, ask, done_calls, fail, say
from agentloupe.providers.scripted.model import Rule, ScriptedModel
from agentloupe.providers.scripted.samples import sample_rule
from agentloupe.providers.scripted.server import ScriptedServer

__all__ = [
    "Answer",
    "Ask",
    "Done",
    "Rule",
    "ScriptedModel",
    "ScriptedServer",
    "ToolCall",
    "ask",
    "done_calls",
    "fail",
    "sample_rule",
    "say",
]
