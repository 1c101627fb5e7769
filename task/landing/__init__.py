"""Lands on one branch: changesets, head branches and requests, lost races."""
