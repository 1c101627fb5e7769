"""The remaining commands: `scan`, `promote`, `status`, `check`, and `lint --from-image-updater`."""
