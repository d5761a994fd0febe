"""The folder that `run`, `replay` and `fork` put first on `PYTHONPATH`; nothing else may be in it."""
