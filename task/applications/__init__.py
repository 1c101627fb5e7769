"""Sources of Applications. Each source yields the Applications it finds."""
