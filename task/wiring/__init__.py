"""Creates clients from the settings."""
