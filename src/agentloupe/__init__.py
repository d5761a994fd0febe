"""Agent Loupe: record, replay, fork and compare runs of AI agents."""

__version__ = "0.1.0"

__all__ = ["__version__"]
