"""The CI system around the run: what it tells us, and what it gets back."""
