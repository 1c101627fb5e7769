"""The CI system around a run: its variables, and the results that it gets."""
