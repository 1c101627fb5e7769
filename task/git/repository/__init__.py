"""Places to which a change is written.

Each has `snapshot` and `land`: compare-and-swap on a branch's tip.
"""
