"""Answers of chat completions: the SDK's object to the JSON that was received, and back to an equal object.

The SDK builds its objects without validation, 150 microseconds for a short answer. Where pydantic's strict validation
of the same JSON succeeds it gives an equal object in a tenth of that; where it does not (a provider that leaves members
out, or sends other types) the SDK's own way is taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast, get_args, get_origin

import orjson

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.jsontext import parsed

__all__ = ["decoded", "encoded", "with_request_id"]


def encoded(answer: object, response: Any | None) -> Json:
    """The whole answer as JSON: as it was received where the HTTP response is at hand, else as the object says it.

    Text (an answer that is no JSON, which the SDK hands over as it is) stays text.
    """
    if response is not None and not isinstance(answer, str):
        try:
            return parsed(response.content)
        except ValueError:
            pass
    if hasattr(answer, "model_dump"):
        return cast("Any", answer).model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return cast("Json", answer)


def decoded(answer: Json, client: Any) -> object:
    """The object that the SDK would have made of this answer: same types, same set and unset fields, same extras.

    Args:
        answer: JSON of the whole answer.
        client: the client, since its settings (strict response validation) decide too.
    """
    from openai.types.chat import ChatCompletion

    if isinstance(answer, dict):
        try:
            return _as_built(ChatCompletion.model_validate_json(orjson.dumps(answer), strict=True))
        except (ValueError, TypeError):
            pass  # not as the SDK's types say, integers beyond 64 bits, lone surrogates
    if isinstance(answer, str):
        return answer
    return client._process_response_data(data=answer, cast_to=ChatCompletion, response=None)


def _as_built(answer: Any) -> Any:
    """Takes the one mark of validation away: the SDK does not count members that it has no field for as set.

    Only where the SDK builds: it validates whatever may be one of several types (`usage` or nothing) like pydantic.
    """
    if answer.__pydantic_extra__:
        answer.__pydantic_fields_set__.difference_update(answer.__pydantic_extra__)
    values = answer.__dict__
    for name in _built_fields(cast("Any", type(answer))):
        value = values[name]
        if isinstance(value, list):
            for item in cast("list[Any]", value):
                _as_built(item)
        else:
            _as_built(value)
    return answer


@lru_cache(64)
def _built_fields(model: Any) -> tuple[str, ...]:
    """Fields that always hold an SDK object, or a list of such."""
    from openai import BaseModel

    found: list[str] = []
    for name, about in model.model_fields.items():
        kind = about.annotation
        if get_origin(kind) is list:
            (kind,) = get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found.append(name)
    return tuple(found)


def with_request_id(answer: object, facts: Attrs) -> object:
    """Sets the request id, which comes in a header, on an answer as the SDK does."""
    if hasattr(answer, "model_fields_set"):
        cast("Any", answer)._request_id = facts.get("request_id")
    return answer
