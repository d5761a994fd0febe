"""Decisions without I/O: recording, replay, fork, projection, comparison, secret removal, costs."""
