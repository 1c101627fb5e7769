"""Settings → clients."""
