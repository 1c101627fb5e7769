"""The stores that changes are written to.

Each has `snapshot` and `land`, which together are a compare-and-swap on a branch's tip.
"""
