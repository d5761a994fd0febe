"""Judging a ledger: strict checks in one order, a pure reducer, a report. Decisions only, no files. See ADR 23."""
