"""Stores that a change is written to.

Each has `snapshot` and `land`: compare-and-swap on a branch's tip.
"""
