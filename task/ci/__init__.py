"""A run's CI system: the variables that it sets, and the results that it receives."""
