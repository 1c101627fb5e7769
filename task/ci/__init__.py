"""The CI system around the run: the variables that it sets, and the results that it gets."""
