"""The ticket agent as a module that a child process can import."""

from __future__ import annotations

from tests.unit.test_verification_matrix import HIGH, Desk, ticket_agent

fixture_agent = ticket_agent(Desk(HIGH))
