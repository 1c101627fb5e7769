"""Application sources. Each one yields the Applications it finds."""
