"""The sources of Applications. Each one yields what it finds."""
