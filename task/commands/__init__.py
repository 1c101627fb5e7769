"""One module per command: settings in, exit code out."""
