"""The sources of Applications: each one yields what it found."""
