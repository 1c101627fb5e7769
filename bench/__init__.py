"""Measure the cost of the command, compared with common alternatives. Both sides are measured in the same run."""
