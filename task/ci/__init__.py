"""The CI system of a run: the variables that it sets, and the results that it receives."""
