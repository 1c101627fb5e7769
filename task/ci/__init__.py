"""A run's CI system: the variables it sets, and the results it receives."""
