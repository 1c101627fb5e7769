"""The stores that changes are written to.

Each store has the methods `snapshot` and `land`, which together form a compare-and-swap on a
branch's tip.
"""
