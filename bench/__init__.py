"""Measure the cost of the command, compared with common alternatives. Both sides of a comparison
are measured in the same run.
"""
