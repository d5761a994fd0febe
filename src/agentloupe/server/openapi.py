"""Prints the OpenAPI document: `python -m agentloupe.server.openapi > openapi.json`."""

from __future__ import annotations

import sys

import orjson

from agentloupe.server.app import openapi

if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(openapi(), option=orjson.OPT_INDENT_2) + b"\n")
