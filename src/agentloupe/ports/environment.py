"""Variables of this process that are set for a while only."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager

__all__ = ["variables"]


@contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    """While the block runs these variables have these values; then each is as it was before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
