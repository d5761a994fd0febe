"""Measurements: the engine against targets, against what the machine can do, and against peers, side by side in one run.

python -m bench                      # everything, a few minutes
python -m bench --quick              # smaller, for a look
python -m bench --rows recording,replay --json figures.json
python -m bench --write-docs         # everything, and the page docs/reference/performance.md with it
"""
