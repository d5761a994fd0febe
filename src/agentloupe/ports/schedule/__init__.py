"""Exact schedules: a recorded order of inputs, and the gate that gives it again. See `core` for the rule."""
