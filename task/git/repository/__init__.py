"""Places a change can land in, each with `snapshot` and `land`: compare-and-swap on a tip."""
