"""The CI system of a run: its variables, and the results that it gets."""
