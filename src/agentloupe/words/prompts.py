"""Which prompt template a model call was made from: a fact of the call beside what it sends, which it never changes.

{"name": "refund", "version": "4"}                 refund@4
{"name": "refund", "digest": "9f86d081884c..."}    refund#9f86d081
"""

from __future__ import annotations

from agentloupe.words.call import Attrs

__all__ = ["PROMPT", "TEMPLATE", "prompt_change", "prompt_of"]

PROMPT = "prompt"
"""The fact's name. Its parts are called as OpenTelemetry calls them (`gen_ai.prompt.name`)."""
TEMPLATE = "template "
"""What a word on two templates begins with."""
_NONE = "none"


def prompt_of(attrs: Attrs) -> str | None:
    """The template of a call in one word, `None` where none was told."""
    said = attrs.get(PROMPT)
    if not isinstance(said, dict) or "name" not in said:
        return None
    version, digest = said.get("version"), said.get("digest")
    return f"{said['name']}{f'@{version}' if version else ''}{f'#{str(digest)[:8]}' if digest else ''}"


def prompt_change(left: Attrs, right: Attrs) -> str | None:
    """How the templates of two calls differ: `template refund@3 -> refund@4`; `None` where they do not."""
    was, now = prompt_of(left), prompt_of(right)
    return None if was == now else f"{TEMPLATE}{was or _NONE} -> {now or _NONE}"
