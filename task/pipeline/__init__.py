"""The story: discover, match, decide, deliver, follow, report."""
