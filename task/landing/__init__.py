"""Landing changes on one branch: changesets, head branches, requests, and lost races."""
